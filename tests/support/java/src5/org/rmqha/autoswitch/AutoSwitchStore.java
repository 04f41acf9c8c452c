package org.rmqha.autoswitch;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.HAConnection;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * A store of RocketMQ 5.1.4 with its AutoSwitchHAService, and no controller: one command per line on stdin, one answer
 * per line on stdout ("ok ..." or "error ..."). Arguments: folder, broker id, then store properties as key=value.
 */
public final class AutoSwitchStore {
    private static final String TOPIC = "AutoSwitch";
    private final MessageStoreConfig config = new MessageStoreConfig();
    private final DefaultMessageStore store;
    private final long brokerId;
    private final ConcurrentLinkedQueue<Long> acked = new ConcurrentLinkedQueue<>();
    private final ConcurrentHashMap<String, AtomicLong> refused = new ConcurrentHashMap<>();
    private final List<Thread> load = new ArrayList<>();
    private final ReadWriteLock roleLock = new ReentrantReadWriteLock();
    private volatile boolean loading;

    private AutoSwitchStore(String folder, long brokerId, List<String> properties) throws Exception {
        this.brokerId = brokerId;
        config.setStorePathRootDir(folder);
        config.setStorePathCommitLog(folder + File.separator + "commitlog");
        Properties wanted = new Properties();
        properties.forEach(pair -> wanted.setProperty(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1)));
        MixAll.properties2Object(wanted, config);
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerId(brokerId);
        broker.setEnableControllerMode(true);
        store = new DefaultMessageStore(config, new BrokerStatsManager("test", true), null, broker, new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the store can't be loaded");
        }
        store.start();
        service().setLocalBrokerId(brokerId);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        AutoSwitchStore main = new AutoSwitchStore(args[0], Long.parseLong(args[1]), Arrays.asList(args).subList(2, args.length));
        answers.println("ok " + main.config.getHaListenPort());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = "ok " + main.execute(line.split(" "));
            } catch (Throwable e) {
                e.printStackTrace();
                answer = "error " + e;
            }
            answers.println(answer.replace('\n', ' '));
        }
        main.store.shutdown();
        System.exit(0);
    }

    private AutoSwitchHAService service() {
        return (AutoSwitchHAService) store.getHaService();
    }

    /** 5.1.4 walks its list of connections without a lock, and fails if one is added or removed meanwhile. */
    private void setMembers(Set<Long> members) {
        for (int tries = 1; ; tries++) {
            try {
                service().setSyncStateSet(members);
                return;
            } catch (ConcurrentModificationException e) {
                if (tries == 1000) {
                    throw e;
                }
            }
        }
    }

    private String execute(String[] words) throws Exception {
        switch (words[0]) {
            case "master": {  // EPOCH
                boolean done = service().changeToMaster(Integer.parseInt(words[1]));
                setRole(BrokerRole.SYNC_MASTER);
                store.getRunningFlags().makeFenced(false);
                return String.valueOf(done);
            }
            case "slave": {  // ADDRESS EPOCH
                setRole(BrokerRole.SLAVE);
                boolean done = service().changeToSlave("", Integer.parseInt(words[2]), brokerId);
                store.updateHaMasterAddress(words[1]);
                return String.valueOf(done);
            }
            case "set":  // ID,ID,...
                setMembers(Arrays.stream(words[1].split(",")).map(Long::valueOf).collect(Collectors.toSet()));
                return service().getSyncStateSet().toString();
            case "auto":  // accepts everything, as a controller would
                service().registerSyncStateSetChangedListener(this::setMembers);
                return "";
            case "shrink": {
                Set<Long> set = service().maybeShrinkSyncStateSet();
                setMembers(set);
                return set.toString();
            }
            case "put":  // FIRST COUNT SIZE
                for (long index = Long.parseLong(words[1]), end = index + Long.parseLong(words[2]); index < end; index++) {
                    put(index, Integer.parseInt(words[3]));
                }
                return "";
            case "load":  // FIRST SIZE THREADS
                startLoad(new AtomicLong(Long.parseLong(words[1])), Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                return "";
            case "stop":
                loading = false;
                for (Thread thread : load) {
                    thread.join();
                }
                load.clear();
                return "";
            case "acked":
                return join(acked) + " " + refused;
            case "state":
                return state();
            case "flush":
                store.flush();
                return "";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private void setRole(BrokerRole role) {
        roleLock.writeLock().lock();
        try {
            config.setBrokerRole(role);
        } finally {
            roleLock.writeLock().unlock();
        }
    }

    private void startLoad(AtomicLong next, int size, int threads) {
        loading = true;
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                while (loading) {
                    put(next.getAndIncrement(), size);
                }
            }, "load-" + i);
            load.add(thread);
            thread.start();
        }
    }

    private void put(long index, int size) {
        MessageExtBrokerInner msg = new MessageExtBrokerInner();
        msg.setTopic(TOPIC);
        byte[] body = Arrays.copyOf((index + ":").getBytes(StandardCharsets.US_ASCII), size);
        msg.setBody(body);
        msg.setKeys("k" + index);
        msg.setQueueId(0);
        msg.setBornTimestamp(System.currentTimeMillis());
        msg.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        msg.setBornHost(new InetSocketAddress("127.0.0.1", 40000));
        msg.setPropertiesString(MessageDecoder.messageProperties2String(msg.getProperties()));
        CompletableFuture<PutMessageResult> result;
        roleLock.readLock().lock();  // a broker checks the role in a hook; a store accepts and acknowledges everything
        try {
            if (config.getBrokerRole() == BrokerRole.SLAVE) {
                refused.computeIfAbsent("SLAVE", name -> new AtomicLong()).incrementAndGet();
                LockSupport.parkNanos(10_000_000);
                return;
            }
            result = store.asyncPutMessage(msg);
        } finally {
            roleLock.readLock().unlock();
        }
        PutMessageStatus status = result.join().getPutMessageStatus();
        if (status == PutMessageStatus.PUT_OK) {
            acked.add(index);
        } else {
            refused.computeIfAbsent(status.name(), name -> new AtomicLong()).incrementAndGet();
        }
    }

    private String state() {
        List<String> connections = new ArrayList<>();
        for (HAConnection connection : service().getConnectionList()) {
            connections.add(connection.getCurrentState() + "/" + connection.getSlaveAckOffset());
        }
        String client = service().getHAClient() == null ? "" : service().getHAClient().getCurrentState().name();
        List<EpochEntry> epochs = service().getEpochEntries();
        return "max=" + store.getMaxPhyOffset() + " min=" + store.getMinPhyOffset() + " confirm=" + store.getConfirmOffset()
            + " set=" + join(service().getLocalSyncStateSet()) + " queue=" + store.getMaxOffsetInQueue(TOPIC, 0)
            + " behind=" + store.dispatchBehindBytes() + " client=" + client + " connections=" + String.join(",", connections)
            + " epochs=" + epochs.stream().map(e -> e.getEpoch() + "-" + e.getStartOffset()).collect(Collectors.joining(","));
    }

    private static String join(Collection<Long> numbers) {
        return numbers.stream().sorted().map(String::valueOf).collect(Collectors.joining(","));
    }
}
