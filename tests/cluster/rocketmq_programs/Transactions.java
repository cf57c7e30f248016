// RocketMQ's own client for Java, as transactions.py is for Python.
// Usage: java -cp JAR Transactions.java HOST:PORT TOPIC

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

public class Transactions {
    static final Map<String, Integer> CHECKED = new ConcurrentSkipListMap<>();

    static String body(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    static TransactionResolution check(MessageView view) {
        String body = body(view);
        int times = CHECKED.merge('"' + body + '"', 1, Integer::sum);
        if (body.equals("unsure") && times == 1) {
            return TransactionResolution.UNKNOWN;
        }
        return body.equals("undone") ? TransactionResolution.ROLLBACK : TransactionResolution.COMMIT;
    }

    public static void main(String[] arguments) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        String topic = arguments[1];
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0]).enableSsl(false).build();
        Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(topic).setTransactionChecker(Transactions::check).build();
        Map<String, String> ids = new HashMap<>();
        for (String body : new String[] {"committed", "rolled back", "left", "undone", "unsure"}) {
            Message message = provider.newMessageBuilder().setTopic(topic).setTag("tag")
                .setBody(body.getBytes(StandardCharsets.UTF_8)).build();
            Transaction transaction = producer.beginTransaction();
            ids.put(body, producer.send(message, transaction).getMessageId().toString());
            if (body.equals("committed")) {
                transaction.commit();
            } else if (body.equals("rolled back")) {
                transaction.rollback();
            }
        }
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("g").setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build();
        TreeSet<String> seen = new TreeSet<>();
        List<String> wrong = new ArrayList<>();
        long until = System.currentTimeMillis() + 60_000;
        while (System.currentTimeMillis() < until) {
            List<MessageView> got = consumer.receive(16, Duration.ofSeconds(20));
            if (got.isEmpty() && seen.size() >= 4) {
                break;
            }
            for (MessageView view : got) {
                String id = view.getMessageId().toString();
                if (!seen.add('"' + body(view) + '"') || !id.equals(ids.getOrDefault(body(view), id))) {
                    wrong.add(body(view));
                }
                consumer.ack(view);
            }
        }
        consumer.close();
        producer.close();
        if (!wrong.isEmpty()) {
            throw new AssertionError("twice, or by another id: " + wrong);
        }
        System.out.printf("{\"seen\": %s, \"checked\": %s}%n", seen, CHECKED.toString().replace('=', ':'));
        System.out.flush();
        System.exit(0);
    }
}
