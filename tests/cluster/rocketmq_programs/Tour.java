// RocketMQ's own client for Java, as tour.py is for Python. Usage: java -cp JAR Tour.java HOST:PORT TOPIC [KEY SECRET NAMESPACE]

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

public class Tour {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static String topic;

    static MessageBuilder message(String body) {
        return message(body, "tag", "red");
    }

    static MessageBuilder message(String body, String tag, String colour) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setTag(tag).setKeys("key-" + body)
            .addProperty("colour", colour).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    static String recalled(Producer producer, String handle) {
        try {
            return "OK " + producer.recallMessage(topic, handle).getMessageId();
        } catch (Exception error) {
            return error.toString().replace('"', ' ').replace('\n', ' ');
        }
    }

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        boolean guarded = arguments.length > 2;
        ClientConfigurationBuilder told = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0]).enableSsl(guarded);
        if (guarded) {
            told.setCredentialProvider(new StaticSessionCredentialsProvider(arguments[2], arguments[3]))
                .setNamespace(arguments[4]);
        }
        ClientConfiguration configuration = told.build();
        Map<String, FilterExpression> byTags = Map.of(topic, new FilterExpression("tag || other"));
        Map<String, FilterExpression> byProperties = Map.of(topic,
            new FilterExpression("colour = 'red' AND size IS NULL", FilterExpressionType.SQL92));
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(topic).build();
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch wanted = new CountDownLatch(6);
        PushConsumer push = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("push").setSubscriptionExpressions(byTags).setMessageListener(view -> {
                String body = body(view);
                seen.add(String.format("[\"%s\", %d, %d, false]", body, view.getDeliveryAttempt(),
                    System.currentTimeMillis()));
                if (body.equals("fail") && view.getDeliveryAttempt() == 1) {
                    return ConsumeResult.FAILURE;
                }
                wanted.countDown();
                return ConsumeResult.SUCCESS;
            }).build();

        SendReceipt now = producer.send(message("now").build());
        long due = System.currentTimeMillis() + 3_000;
        SendReceipt delayed = producer.send(message("delayed").setDeliveryTimestamp(due).build());
        SendReceipt far = producer.send(message("far")
            .setDeliveryTimestamp(System.currentTimeMillis() + 3L * 86_400_000).build());
        List<String> recalls = new ArrayList<>();
        for (int n = 0; n < 2; n++) {
            recalls.add('"' + recalled(producer, far.getRecallHandle()).split(" ")[0] + '"');
        }
        producer.send(message("filtered", "none", "blue").build());
        producer.send(message("fail").build());
        for (int n = 0; n < 3; n++) {
            producer.send(message("fifo" + n).setMessageGroup("group").build());
        }
        boolean allCame = wanted.await(60, TimeUnit.SECONDS);
        String late = recalled(producer, delayed.getRecallHandle());
        push.close();

        SimpleConsumer simple = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("simple").setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(byProperties).build();
        Map<String, String> taken = new TreeMap<>();
        long until = System.currentTimeMillis() + 60_000;
        while (taken.size() < 6 && System.currentTimeMillis() < until) {
            for (MessageView view : simple.receive(16, Duration.ofSeconds(20))) {
                if (taken.isEmpty()) {
                    simple.changeInvisibleDuration(view, Duration.ofSeconds(30));
                }
                taken.put('"' + body(view) + '"', '"' + view.getTag().get() + view.getProperties() + view.getKeys() + '"');
                simple.ack(view);
            }
        }
        List<String> rest = new ArrayList<>();
        for (MessageView view : simple.receive(16, Duration.ofSeconds(20))) {
            rest.add('"' + body(view) + '"');
        }
        simple.close();
        producer.close();
        StringBuilder simpleTold = new StringBuilder();
        taken.forEach((name, value) -> simpleTold.append(simpleTold.length() == 0 ? "" : ", ")
            .append(name).append(": ").append(value));
        System.out.printf("{\"now_id\": [%s], \"recalls\": %s, \"all_came\": %s, \"seen\": %s, \"due_ms\": %d, "
            + "\"recall_of_delivered\": \"%s\", \"simple\": {%s}, \"rest\": %s}%n",
            now.getMessageId() != null, recalls, allCame, seen, due, late, simpleTold, rest);
        System.out.flush();
        System.exit(0);
    }
}
