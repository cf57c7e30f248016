// Sends a message that is due in three seconds, and receives it. Usage: delayed [HOST:PORT]
use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::{Producer, SimpleConsumer};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut client = ClientOption::default();
    client.set_access_url(std::env::args().nth(1).unwrap_or("127.0.0.1:8081".into()));
    client.set_enable_tls(false);
    client.set_long_polling_timeout(Duration::from_secs(20));
    let mut sends = ProducerOption::default();
    sends.set_topics(vec!["reminders"]);
    let mut producer = Producer::new(sends, client.clone())?;
    producer.start().await?;
    let mut receives = SimpleConsumerOption::default();
    receives.set_topics(vec!["reminders"]);
    receives.set_consumer_group("examples");
    let mut consumer = SimpleConsumer::new(receives, client)?;
    consumer.start().await?;
    let due = now().as_secs() as i64 + 3;
    let body = b"pay order 7".to_vec();
    let message = MessageBuilder::delay_message_builder("reminders", body, due).build()?;
    let sent = producer.send(message).await?.message_id().to_string();
    println!("sent {sent}");
    let all = FilterExpression::new(FilterType::Tag, "*");
    let mut found = false;
    while !found {
        for view in consumer.receive("reminders", &all).await? {
            let (body, late) = (String::from_utf8_lossy(view.body()), now().as_millis() as i64 - due * 1_000);
            println!("received {} {body} {late} ms after it was due", view.message_id());
            found |= view.message_id() == sent;
            consumer.ack(&view).await?;
        }
    }
    Ok(())
}
