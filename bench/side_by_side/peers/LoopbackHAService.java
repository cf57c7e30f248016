import java.io.IOException;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.DefaultHAService;

/**
 * Replication of a RocketMQ broker on loopback, and at once.
 *
 * <p>The port of the library's own is bound to all addresses, whatever is configured, and its slaves forget
 * haMasterAddress, so that they wait for 5 s or more until the name server has told them.
 */
public final class LoopbackHAService extends DefaultHAService {
    @Override
    public void init(DefaultMessageStore store) throws IOException {
        super.init(store);
        String master = store.getMessageStoreConfig().getHaMasterAddress();
        if (haClient != null && master != null) {
            haClient.updateHaMasterAddress(master);
        }
        if (acceptSocketService == null) {
            return;
        }
        int port = store.getMessageStoreConfig().getHaListenPort();
        try {
            Field address = AcceptSocketService.class.getDeclaredField("socketAddressListen");
            address.setAccessible(true);
            address.set(acceptSocketService, new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        } catch (ReflectiveOperationException unknown) {
            throw new IOException(unknown);
        }
    }
}
