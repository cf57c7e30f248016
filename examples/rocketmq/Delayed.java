// Sends a message that is due in three seconds, and receives it. Usage: java -cp JAR Delayed.java [HOST:PORT]
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import org.apache.rocketmq.client.apis.*;
import org.apache.rocketmq.client.apis.consumer.*;
import org.apache.rocketmq.client.apis.message.*;
import org.apache.rocketmq.client.apis.producer.*;

public class Delayed {
    public static void main(String[] arguments) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:8081";
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(address).enableSsl(false).build();
        Producer producer = provider.newProducerBuilder()
            .setClientConfiguration(configuration).setTopics("reminders").build();
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("examples").setAwaitDuration(Duration.ofSeconds(20))
            .setSubscriptionExpressions(Map.of("reminders", FilterExpression.SUB_ALL)).build();
        long due = System.currentTimeMillis() + 3_000;
        MessageId sent = producer.send(provider.newMessageBuilder().setTopic("reminders")
            .setBody("pay order 7".getBytes(StandardCharsets.UTF_8)).setDeliveryTimestamp(due).build())
            .getMessageId();
        System.out.println("sent " + sent);
        for (boolean found = false; !found; ) {
            for (MessageView view : consumer.receive(16, Duration.ofSeconds(30))) {
                System.out.printf("received %s %s %d ms after it was due%n", view.getMessageId(),
                    StandardCharsets.UTF_8.decode(view.getBody()), System.currentTimeMillis() - due);
                found |= view.getMessageId().toString().equals(sent.toString());
                consumer.ack(view);
            }
        }
        System.exit(0);
    }
}
