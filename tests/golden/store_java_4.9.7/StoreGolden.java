import java.io.File;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Writes a small store with RocketMQ's own store classes, or reads one.
 *   StoreGolden write DIR normal|kill COUNT    one line of JSON: ends, counts and time of the store
 *   StoreGolden read DIR                       one line per message of every queue, then the answers of some key queries
 */
public class StoreGolden {
    static final String[] TAGS = {null, "TagA", "TagB", "\u6807\u7b7e", "a-longer-tag_0"};

    public static void main(String[] args) throws Exception {
        int code = 1;
        try {
            if (args[0].equals("write")) {
                write(new File(args[1]), args[2], Integer.parseInt(args[3]));
            } else {
                read(new File(args[1]));
            }
            code = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(code);
    }

    static DefaultMessageStore open(File root) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.getPath());
        config.setStorePathCommitLog(new File(root, "commitlog").getPath());
        config.setMappedFileSizeCommitLog(16384);
        config.setMappedFileSizeConsumeQueue(1000);
        config.setMaxHashSlotNum(50);
        config.setMaxIndexNum(200);
        config.setHaListenPort(0);
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        DefaultMessageStore store =
            new DefaultMessageStore(config, new BrokerStatsManager("golden", true), null, new BrokerConfig());
        if (!store.load()) {
            throw new IllegalStateException("load failed");
        }
        store.start();
        return store;
    }

    static void write(File root, String how, int count) throws Exception {
        DefaultMessageStore store = open(root);
        for (int i = 0; i < count; i++) {
            PutMessageResult result = i % 17 == 16 ? store.putMessages(batch(i)) : store.putMessage(single(i));
            if (!result.isOk()) {
                throw new IllegalStateException(i + ": " + result);
            }
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(10);
        }
        long end = store.getMaxPhyOffset();
        if (how.equals("kill")) {
            store.flush();
            Runtime.getRuntime().halt(9);
        }
        store.shutdown();
        System.out.println("{\"maxPhyOffset\":" + end + "}");
    }

    static byte[] body(int i) {
        byte[] body = new byte[i * 37 % 900];
        for (int k = 0; k < body.length; k++) {
            body[k] = (byte) (i + k * 7);
        }
        return body;
    }

    static MessageExtBrokerInner single(int i) {
        MessageExtBrokerInner msg = new MessageExtBrokerInner();
        msg.setTopic("GoldenTopic" + i % 3);
        msg.setQueueId(i / 3 % 2);
        msg.setBody(body(i));
        msg.setFlag(i * 1000003);
        fill(msg, i);
        Map<String, String> properties = new HashMap<>();
        if (TAGS[i % 5] != null) {
            properties.put(MessageConst.PROPERTY_TAGS, TAGS[i % 5]);
        }
        if (i % 4 != 0) {
            properties.put(MessageConst.PROPERTY_KEYS, "key" + i % 10 + "  order\u53f7" + i);
        }
        properties.put(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, String.format("7F0000010DAB2A139A55%012X", i * 7919L));
        properties.put("user" + i % 7, "value " + i);
        int kind = i % 13;
        if (kind == 5) {
            msg.setSysFlag(MessageSysFlag.TRANSACTION_PREPARED_TYPE);
        } else if (kind == 7) {
            msg.setSysFlag(MessageSysFlag.TRANSACTION_COMMIT_TYPE | MessageSysFlag.COMPRESSED_FLAG);
            msg.setPreparedTransactionOffset(i * 100L);
        } else if (kind == 9) {
            msg.setSysFlag(MessageSysFlag.TRANSACTION_ROLLBACK_TYPE);
        } else if (kind == 11) {
            properties.put(MessageConst.PROPERTY_DELAY_TIME_LEVEL, i % 2 == 0 ? "18" : "99");
        }
        MessageAccessor.setProperties(msg, properties);
        msg.setPropertiesString(MessageDecoder.messageProperties2String(msg.getProperties()));
        return msg;
    }

    static void fill(MessageExt msg, int i) {
        msg.setBornTimestamp(1600000000000L + i);
        msg.setReconsumeTimes(i % 4);
        msg.setBornHost(new InetSocketAddress(i % 6 == 1 ? "2001:db8::" + i : "10.1.2." + i % 250, 40000 + i));
        msg.setStoreHost(new InetSocketAddress(i % 11 == 3 ? "fe80::1" : "127.0.0.1", 10911));
    }

    static MessageExtBatch batch(int i) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int k = 0; k <= i % 5; k++) {
            Message message = new Message("GoldenTopic1", k % 2 == 0 ? "TagA" : null, "batch" + i + " " + k, body(i + k));
            message.setFlag(k);
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
                String.format("7F0000010DAB2A139A55%012X", 0x100000000L + i * 100L + k));
            messages.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic("GoldenTopic1");
        batch.setQueueId(1);
        batch.setBody(MessageBatch.generateFromList(messages).encode());
        fill(batch, i);
        if (i % 2 == 0) {
            MessageAccessor.putProperty(batch, MessageConst.PROPERTY_CLUSTER, "DefaultCluster");
        }
        return batch;
    }

    static void read(File root) throws Exception {
        DefaultMessageStore store = open(root);
        for (Map.Entry<String, ?> topic : new java.util.TreeMap<String, Object>(store.getConsumeQueueTable()).entrySet()) {
            for (Integer queueId : new java.util.TreeSet<>(store.getConsumeQueueTable().get(topic.getKey()).keySet())) {
                readQueue(store, topic.getKey(), queueId);
            }
        }
        for (int i = 0; i < 10; i++) {
            QueryMessageResult result = store.queryMessage("GoldenTopic" + i % 3, "key" + i, 64, 0, Long.MAX_VALUE);
            System.out.println("key" + i + " " + result.getMessageBufferList().size() + " " + result.getBufferTotalSize());
            result.release();
        }
        System.out.println("end " + store.getMaxPhyOffset());
        store.shutdown();
    }

    static void readQueue(DefaultMessageStore store, String topic, int queueId) throws Exception {
        long offset = store.getMinOffsetInQueue(topic, queueId);
        long max = store.getMaxOffsetInQueue(topic, queueId);
        while (offset < max) {
            GetMessageResult result = store.getMessage("g", topic, queueId, offset, 32, null);
            for (java.nio.ByteBuffer buffer : result.getMessageBufferList()) {
                MessageExt msg = MessageDecoder.decode(buffer, true, false);
                java.util.zip.CRC32 crc = new java.util.zip.CRC32();
                crc.update(msg.getBody() == null ? new byte[0] : msg.getBody());
                System.out.println(String.join(" ", topic, "" + queueId, "" + msg.getQueueOffset(),
                    "" + msg.getCommitLogOffset(), "" + msg.getStoreSize(), "" + crc.getValue(), "" + msg.getSysFlag(),
                    "" + msg.getStoreTimestamp(), "" + msg.getTags()));
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException("stuck at " + topic + queueId + " " + offset + " " + result);
            }
            offset = result.getNextBeginOffset();
            result.release();
        }
        System.out.println("queue " + topic + " " + queueId + " " + store.getMinOffsetInQueue(topic, queueId) + " " + max);
    }
}
