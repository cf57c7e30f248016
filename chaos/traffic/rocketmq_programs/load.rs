// RocketMQ's own client for Rust, as load.py is for Python. Usage: load HOST:PORT TOPIC FIRST_TOKEN
//
// It has neither a push consumer nor recalls: it sends, and receives in the group `simple`.
use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::{Producer, SimpleConsumer};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::sleep;

const PAUSE: Duration = Duration::from_millis(40);

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn quoted(text: impl Display) -> String {
    let told = text.to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", told.replace(|one: char| one.is_control(), " "))
}

async fn send(producer: &Producer, topic: &str, token: i64) {
    let (kind, body, begun_ms) = (token % 10, token.to_string().into_bytes(), now_ms());
    let (mut due_ms, mut key) = (begun_ms, String::new());
    let message = if kind == 3 || kind == 8 {
        key = format!("rust-{}", token % 4);
        MessageBuilder::fifo_message_builder(topic, body, key.clone())
    } else if kind == 1 || kind == 6 {
        MessageBuilder::builder().set_topic(topic).set_body(body)
    } else {
        due_ms = (begun_ms / 1_000 + 2) * 1_000; // it takes whole seconds
        MessageBuilder::delay_message_builder(topic, body, due_ms / 1_000)
    };
    let answer = match message.build() {
        Ok(built) => producer.send(built).await,
        Err(error) => Err(error),
    };
    let (id, error) = match answer {
        Ok(receipt) => (receipt.message_id().to_string(), String::new()),
        Err(error) => (String::new(), error.to_string()),
    };
    let (key, id, error) = (quoted(key), quoted(id), quoted(error));
    println!("[\"sent\",{token},{key},{due_ms},{begun_ms},{},{id},{error}]", now_ms());
}

async fn receive(consumer: SimpleConsumer, topic: String, ends: Arc<AtomicBool>) {
    let all = FilterExpression::new(FilterType::Tag, "*");
    while !ends.load(Ordering::Relaxed) {
        let views = match consumer.receive_with(&topic, &all, 32, Duration::from_secs(10)).await {
            Ok(views) => views,
            Err(error) => {
                println!("[\"failed\",\"receive\",{}]", quoted(error));
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        for view in &views {
            let (token, attempt) = (String::from_utf8_lossy(view.body()), view.delivery_attempt());
            let (id, marked) = (quoted(view.message_id()), view.properties().contains_key("tarry.maybe_duplicate"));
            println!("[\"got\",\"simple\",{token},{id},{attempt},{marked},{}]", now_ms());
        }
        for view in &views {  // an ack may wait for a leader
            let (token, attempt) = (String::from_utf8_lossy(view.body()), view.delivery_attempt());
            match consumer.ack(view).await {
                Ok(()) => println!("[\"done\",\"simple\",{token},{attempt},{}]", now_ms()),
                Err(error) => println!("[\"failed\",\"ack\",{}]", quoted(error)),
            }
        }
    }
    let _ = consumer.shutdown().await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given: Vec<String> = std::env::args().collect();
    let (topic, mut token) = (given[2].clone(), given[3].parse::<i64>()?);
    let mut client = ClientOption::default();
    client.set_access_url(given[1].clone());
    client.set_enable_tls(false);
    client.set_long_polling_timeout(Duration::from_secs(5));
    let mut sends = ProducerOption::default();
    sends.set_topics(vec![topic.clone()]);
    let mut producer = Producer::new(sends, client.clone())?;
    producer.start().await?;
    let mut receives = SimpleConsumerOption::default();
    receives.set_topics(vec![topic.clone()]);
    receives.set_consumer_group("simple");
    let mut consumer = SimpleConsumer::new(receives, client)?;
    consumer.start().await?;
    let (stops, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let steps = [stops.clone(), ends.clone()];
    std::thread::spawn(move || {
        for step in steps {
            let _ = std::io::stdin().read_line(&mut String::new());
            step.store(true, Ordering::Relaxed);
        }
    });
    let receiving = tokio::spawn(receive(consumer, topic.clone(), ends.clone()));
    println!("[\"begun\"]");
    while !stops.load(Ordering::Relaxed) {
        send(&producer, &topic, token).await;
        token += 1;
        sleep(PAUSE).await;
    }
    println!("[\"stopped\"]");
    receiving.await?;
    producer.shutdown().await?;
    println!("[\"ended\"]");
    Ok(())
}
