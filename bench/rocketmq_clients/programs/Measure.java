// RocketMQ's own client for Java, measured as measure.py says.
// Usage: java -cp JAR Measure.java HOST:PORT TOPIC TASKS RATE_MS SINGLES PER_S LATE_MS CROWD LEAD_MS

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntConsumer;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.producer.Producer;

public class Measure {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final int BODY_BYTES = 100;
    static final double HOUR_MS = 3_600_000;
    static final double COMES_MS = 60_000;
    static final Map<String, Double> CAME = new ConcurrentHashMap<>();
    static final Map<String, Long> DUE = new ConcurrentHashMap<>();
    static final AtomicInteger FAILED = new AtomicInteger();

    static Producer producer;
    static String topic;
    static int tasks;

    static double now() {
        Instant instant = Instant.now();
        return instant.getEpochSecond() * 1e3 + instant.getNano() / 1e6;
    }

    static double clock() {
        return System.nanoTime() / 1e6;
    }

    static String list(List<Double> some) {
        return some.stream().map(each -> String.format(Locale.ROOT, "%.3f", each))
            .collect(Collectors.joining(",", "[", "]"));
    }

    static void pause(double ms) {
        try {
            Thread.sleep((long) Math.max(0, ms), (int) (Math.max(0, ms) % 1 * 1e6));
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static boolean send(String token, double dueMs) {
        long wholeMs = (long) Math.ceil(dueMs);
        byte[] body = String.format("%-" + BODY_BYTES + "s", token).getBytes(StandardCharsets.UTF_8);
        try {
            producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setBody(body)
                .setDeliveryTimestamp(wholeMs).build());
        } catch (Exception error) {
            System.err.println(error);
            return false;
        }
        if (now() > wholeMs) {
            return false;
        }
        DUE.put(token, wholeMs);
        return true;
    }

    static void sent(String token, double dueMs) {
        if (!send(token, dueMs)) {
            FAILED.incrementAndGet();
        }
    }

    static void allTasks(IntConsumer work) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < tasks; number++) {
            int task = number;
            threads.add(new Thread(() -> work.accept(task)));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static double rate(int rateMs) throws InterruptedException {
        AtomicInteger right = new AtomicInteger();
        AtomicInteger wrong = new AtomicInteger();
        double start = clock();
        allTasks(task -> {
            while (clock() < start + rateMs) {
                (send("rate-" + task, now() + HOUR_MS) ? right : wrong).incrementAndGet();
            }
        });
        double took = clock() - start;
        System.out.printf("[\"rate\", %d, %d, %d]%n", right.get(), wrong.get(), Math.round(took));
        return 1e3 * right.get() / took;
    }

    /** Wait until all of a kind have come, and tell how late each was. */
    static void told(String kind) {
        Map<String, Long> wanted = DUE.entrySet().stream().filter(each -> each.getKey().startsWith(kind))
            .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
        double until = wanted.values().stream().mapToDouble(each -> each).reduce(now(), Math::max) + COMES_MS;
        while (!CAME.keySet().containsAll(wanted.keySet()) && now() < until) {
            pause(100);
        }
        List<Double> late = wanted.entrySet().stream().filter(each -> CAME.containsKey(each.getKey()))
            .map(each -> CAME.get(each.getKey()) - each.getValue()).toList();
        System.out.printf("[\"%s\", %d, %d, %s]%n", kind, FAILED.getAndSet(0), wanted.size() - late.size(),
            list(late));
    }

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        int[] numbers = Arrays.stream(arguments).skip(2).mapToInt(Integer::parseInt).toArray();
        tasks = numbers[0];
        int perS = numbers[3];
        int crowd = numbers[5];
        int leadMs = numbers[6];
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0]).enableSsl(false).build();
        producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(topic).setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                String body = StandardCharsets.UTF_8.decode(view.getBody()).toString();
                CAME.putIfAbsent(body.split(" ", 2)[0], now());
                return ConsumeResult.SUCCESS;
            }).build();
        rate(numbers[1]);
        double perSecond = rate(numbers[1]);
        List<Double> took = new ArrayList<>();
        for (int number = 0; number < numbers[2]; number++) {
            double start = clock();
            if (send("single-" + number, now() + HOUR_MS)) {
                took.add(clock() - start);
            }
        }
        System.out.printf("[\"single\", %d, %s]%n", numbers[2] - took.size(), list(took));
        double start = now();
        int count = perS * numbers[4] / 1_000;
        allTasks(task -> {
            for (int number = task; number < count; number += tasks) {
                double planned = start + number * 1e3 / perS;
                pause(planned - now());
                sent("late-" + number, planned + leadMs);
            }
        });
        told("late");
        double instant = now() + Math.max(leadMs, 1_500 * crowd / Math.max(perSecond, 1));
        allTasks(task -> {
            for (int number = task; number < crowd; number += tasks) {
                sent("crowd-" + number, instant);
            }
        });
        told("crowd");
        System.exit(0); // to close takes as long as a poll
    }
}
