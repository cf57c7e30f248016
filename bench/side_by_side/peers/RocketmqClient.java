import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.store.timer.TimerMetrics;

/**
 * RocketMQ's client, driven over stdin and stdout: java RocketmqClient NAME_SERVER BROKER THREADS
 *
 * <p>Frames, big-endian: u32 length of the rest, u64 number, u8 kind, payload. An answer bears the number of
 * its request and the kind A, a failure F with its text, messages that came for a request R the kind D.
 *
 * <pre>
 * W                                wait until messages are taken       -> (nothing)
 * O lane                           make a topic                        -> (nothing)
 * S lane bodies, i64 due_ms each   schedule, one message a send        -> (nothing)
 * P                                count what is scheduled             -> i64
 * K lane                           read some scheduled bodies back     -> bodies
 * R lane                           consume: D frames, i64 received_us bodies
 * E lane                           end consuming, offsets committed    -> (nothing)
 * C lane i64                       recall so many                      -> i64
 * bodies: u32 count, u32 size of each, their bytes
 * </pre>
 */
public final class RocketmqClient {
    private static final int SAMPLES = 200;
    private static final int QUEUES = 8;
    private static final int READY_S = 60;

    /** The handles that recall a lane's messages, and the addresses of some of them in the log. */
    private static final class Lane {
        final List<String> handles = new ArrayList<>();
        final List<String> samples = new ArrayList<>();

        synchronized void keep(SendResult result, boolean recallable) {
            if (samples.size() < SAMPLES) {
                samples.add(result.getOffsetMsgId());
            }
            if (recallable) {
                handles.add(result.getRecallHandle());
            }
        }
    }

    private final DataOutputStream out = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
    private final Map<String, Lane> lanes = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final ExecutorService senders;
    private final ExecutorService others = Executors.newCachedThreadPool();
    private final DefaultMQProducer producer = new DefaultMQProducer("bench");
    private final String nameServer;
    private final String broker;

    private RocketmqClient(String nameServer, String broker, int threads) {
        this.nameServer = nameServer;
        this.broker = broker;
        senders = Executors.newFixedThreadPool(threads);
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        System.setOut(System.err); // the library's logging prints there, and stdout is for frames
        new RocketmqClient(arguments[0], arguments[1], Integer.parseInt(arguments[2])).serve();
        System.exit(0);
    }

    private void serve() throws Exception {
        producer.setNamesrvAddr(nameServer);
        producer.setClientIP("127.0.0.1");
        producer.setSendMsgTimeout(30_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        while (true) {
            byte[] frame;
            try {
                frame = new byte[in.readInt()];
            } catch (EOFException end) {
                return;
            }
            in.readFully(frame);
            DataInputStream request = new DataInputStream(new ByteArrayInputStream(frame));
            long number = request.readLong();
            char kind = (char) request.readByte();
            if (kind == 'S') {
                schedule(number, request.readUTF(), request);
            } else {
                others.execute(() -> handle(number, kind, request));
            }
        }
    }

    /** Send until the slaves are there: a message is refused before. */
    private void becomeReady() throws Exception {
        long deadline = System.currentTimeMillis() + READY_S * 1_000L;
        while (true) {
            try {
                open("ready");
                if (producer.send(new Message("ready", new byte[1])).getSendStatus() == SendStatus.SEND_OK) {
                    return;
                }
                throw new IOException("no slave");
            } catch (Exception early) {
                if (System.currentTimeMillis() > deadline) {
                    throw early;
                }
                Thread.sleep(100);
            }
        }
    }

    private void handle(long number, char kind, DataInputStream request) {
        try {
            switch (kind) {
                case 'W' -> {
                    becomeReady();
                    answer(number, 'A', new byte[0]);
                }
                case 'O' -> {
                    open(request.readUTF());
                    answer(number, 'A', new byte[0]);
                }
                case 'P' -> answer(number, 'A', ByteBuffer.allocate(8).putLong(pending()).array());
                case 'K' -> answer(number, 'A', joined(ByteBuffer.allocate(0), peek(request.readUTF())));
                case 'R' -> receive(number, request.readUTF());
                case 'E' -> {
                    consumers.remove(request.readUTF()).shutdown();
                    answer(number, 'A', new byte[0]);
                }
                case 'C' -> recall(number, request.readUTF(), (int) request.readLong());
                default -> throw new IOException("unknown request " + kind);
            }
        } catch (Exception failure) {
            fail(number, failure);
        }
    }

    /** Make a topic at the broker itself: the producer's own call drops its attributes. */
    private void open(String lane) throws Exception {
        TopicConfig topic = new TopicConfig(lane, QUEUES, QUEUES);
        topic.setAttributes(Map.of("+message.type", "DELAY"));
        api().createTopic(broker, producer.getCreateTopicKey(), topic, 10_000);
        lanes.put(lane, new Lane());
    }

    private void schedule(long number, String topic, DataInputStream request) throws IOException {
        Lane lane = lanes.get(topic);
        boolean recallable = topic.startsWith("cancel");
        int count = request.readInt();
        byte[][] bodies = new byte[count][request.readInt()];
        for (byte[] body : bodies) {
            request.readFully(body);
        }
        AtomicInteger left = new AtomicInteger(count);
        AtomicReference<Exception> failed = new AtomicReference<>();
        for (byte[] body : bodies) {
            Message message = new Message(topic, body);
            message.setDeliverTimeMs(request.readLong());
            senders.execute(() -> each(number, left, failed, () -> {
                SendResult result = producer.send(message);
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IOException(result.getSendStatus().toString());
                }
                lane.keep(result, recallable);
            }));
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    /** Do one of many, and answer for all after the last. */
    private void each(long number, AtomicInteger left, AtomicReference<Exception> failed, Work work) {
        try {
            work.run();
        } catch (Exception failure) {
            failed.set(failure);
        }
        if (left.decrementAndGet() == 0) {
            if (failed.get() == null) {
                answer(number, 'A', new byte[0]);
            } else {
                fail(number, failed.get());
            }
        }
    }

    private MQClientAPIImpl api() {
        return producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
    }

    private long pending() throws Exception {
        RemotingCommand asked = RemotingCommand.createRequestCommand(RequestCode.GET_TIMER_METRICS, null);
        RemotingCommand said = api().getRemotingClient().invokeSync(broker, asked, 10_000);
        return RemotingSerializable.decode(said.getBody(), TimerMetrics.TimerMetricsSerializeWrapper.class)
            .getTimingCount().values().stream().mapToLong(each -> each.getCount().get()).sum();
    }

    private List<byte[]> peek(String topic) throws Exception {
        List<byte[]> bodies = new ArrayList<>();
        for (String id : List.copyOf(lanes.get(topic).samples)) {
            long offset = MessageDecoder.decodeMessageId(id).getOffset();
            bodies.add(api().viewMessage(broker, topic, offset, 10_000).getBody());
        }
        return bodies;
    }

    private void receive(long number, String topic) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("of-" + topic);
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setHeartbeatBrokerInterval(1_000); // a group whose first is lost gets nothing before the next
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(1_000);
        consumer.setConsumeMessageBatchMaxSize(1_000);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            ByteBuffer at = ByteBuffer.allocate(8).putLong(System.currentTimeMillis());
            answer(number, 'D', joined(at, messages.stream().map(MessageExt::getBody).toList()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumers.put(topic, consumer);
        consumer.start();
    }

    private void recall(long number, String topic, int count) {
        List<String> handles = lanes.get(topic).handles.subList(0, count);
        AtomicInteger left = new AtomicInteger(count);
        AtomicReference<Exception> failed = new AtomicReference<>();
        for (String handle : handles) {
            senders.execute(() -> each(number, left, failed, () -> producer.recallMessage(topic, handle)));
        }
    }

    private static byte[] joined(ByteBuffer head, List<byte[]> bodies) {
        int size = bodies.isEmpty() ? 0 : bodies.get(0).length;
        ByteBuffer all = ByteBuffer.allocate(head.capacity() + 8 + bodies.size() * size);
        all.put(head.array()).putInt(bodies.size()).putInt(size);
        bodies.forEach(all::put);
        return all.array();
    }

    private void fail(long number, Exception failure) {
        answer(number, 'F', failure.toString().getBytes());
    }

    private void answer(long number, char kind, byte[] payload) {
        byte[] frame = ByteBuffer.allocate(13 + payload.length)
            .putInt(9 + payload.length).putLong(number).put((byte) kind).put(payload).array();
        synchronized (out) {
            try {
                out.write(frame);
            } catch (IOException gone) {
                System.exit(1);
            }
        }
    }
}
