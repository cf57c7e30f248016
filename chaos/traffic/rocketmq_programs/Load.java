// RocketMQ's own client for Java, as load.py is for Python.
// Usage: java -cp JAR Load.java HOST:PORT TOPIC FIRST_TOKEN

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

public class Load {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final long PAUSE_MS = 40;
    static final long RECALLED_BEFORE_MS = 50;
    static final CountDownLatch STOPS = new CountDownLatch(1);
    static final CountDownLatch ENDS = new CountDownLatch(1);

    record Later(long dueMs, long token, String handle) {
    }

    static String topic;

    static synchronized void tell(String format, Object... fields) {
        System.out.printf(format + "%n", fields);
        System.out.flush();
    }

    static long now() {
        return System.currentTimeMillis();
    }

    static String text(Exception error) {
        return error.toString().replaceAll("[^ -~]|[\"\\\\]", " ");
    }

    static long got(String group, MessageView view) {
        long token = Long.parseLong(StandardCharsets.UTF_8.decode(view.getBody()).toString());
        tell("[\"got\", \"%s\", %d, \"%s\", %d, %b, %d]", group, token, view.getMessageId(),
            view.getDeliveryAttempt(), view.getProperties().containsKey("tarry.maybe_duplicate"), now());
        return token;
    }

    static void receive(SimpleConsumer consumer) {
        while (ENDS.getCount() > 0) {
            try {
                Map<MessageView, Long> tokens = new LinkedHashMap<>();
                for (MessageView view : consumer.receive(32, Duration.ofSeconds(10))) {
                    tokens.put(view, got("simple", view)); // all of them before an ack waits for a leader
                }
                for (MessageView view : tokens.keySet()) {
                    try {
                        consumer.ack(view);
                        tell("[\"done\", \"simple\", %d, %d, %d]", tokens.get(view), view.getDeliveryAttempt(), now());
                    } catch (Exception error) {
                        tell("[\"failed\", \"ack\", \"%s\"]", text(error));
                    }
                }
            } catch (Exception error) {
                tell("[\"failed\", \"receive\", \"%s\"]", text(error));
                pause(100);
            }
        }
    }

    static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static void recall(Producer producer, long token, String handle) {
        String failed = "";
        try {
            producer.recallMessage(topic, handle);
        } catch (Exception error) {
            failed = text(error);
        }
        tell("[\"recalled\", %d, %d, \"%s\"]", token, now(), failed);
    }

    static void send(Producer producer, long token, ArrayDeque<Later> later) {
        long kind = token % 10;
        long sent = now();
        long due = sent;
        String key = "";
        MessageBuilder message = PROVIDER.newMessageBuilder().setTopic(topic)
            .setBody(Long.toString(token).getBytes(StandardCharsets.UTF_8));
        if (kind == 3 || kind == 8) {
            key = "java-" + token % 4;
            message.setMessageGroup(key);
        } else if (kind != 1 && kind != 6) {
            due += 1_500;
            message.setDeliveryTimestamp(due);
        }
        SendReceipt receipt;
        try {
            receipt = producer.send(message.build());
        } catch (Exception error) {
            tell("[\"sent\", %d, \"%s\", %d, %d, %d, \"\", \"%s\"]", token, key, due, sent, now(),
                text(error));
            return;
        }
        tell("[\"sent\", %d, \"%s\", %d, %d, %d, \"%s\", \"\"]", token, key, due, sent, now(),
            receipt.getMessageId());
        if (kind == 0) {
            recall(producer, token, receipt.getRecallHandle());
        } else if (kind == 2 || kind == 5) {
            later.add(new Later(due, token, receipt.getRecallHandle()));
        }
    }

    static void listen() {
        try {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            lines.readLine();
            STOPS.countDown();
            lines.readLine();
        } catch (Exception error) {
            error.printStackTrace();
        }
        STOPS.countDown();
        ENDS.countDown();
    }

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        long token = Long.parseLong(arguments[2]);
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0]).enableSsl(false).build();
        Map<String, FilterExpression> all = Collections.singletonMap(topic, FilterExpression.SUB_ALL);
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(topic).build();
        PushConsumer push = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("push").setSubscriptionExpressions(all).setMessageListener(view -> {
                boolean fails = got("push", view) % 10 == 4 && view.getDeliveryAttempt() == 1;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        SimpleConsumer simple = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("simple").setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(all).build();
        Thread listening = new Thread(Load::listen);
        listening.setDaemon(true);
        listening.start();
        Thread receiving = new Thread(() -> receive(simple));
        receiving.start();
        tell("[\"begun\"]");
        ArrayDeque<Later> later = new ArrayDeque<>();
        while (STOPS.getCount() > 0 || !later.isEmpty()) {
            if (STOPS.getCount() > 0) {
                send(producer, token++, later);
            }
            while (!later.isEmpty() && later.peek().dueMs() - RECALLED_BEFORE_MS <= now()) {
                Later due = later.poll();
                recall(producer, due.token(), due.handle());
            }
            pause(PAUSE_MS);
        }
        tell("[\"stopped\"]");
        ENDS.await();
        receiving.join();
        push.close();
        simple.close();
        producer.close();
        tell("[\"ended\"]");
        System.exit(0);
    }
}
