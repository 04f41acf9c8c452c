import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.protocol.body.*;
import org.apache.rocketmq.common.protocol.header.*;
import org.apache.rocketmq.common.protocol.route.*;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.*;

/** Writes remoting_headers.json, remoting_commands.json and remoting_fastjson.json: args are model_headers.json and the folder. */
public class RemotingGolden {
    static Path out;
    static String hex(byte[] b) { return UtilAll.bytes2string(b).toLowerCase(); }
    static String hex(String s) { return hex(s.getBytes(StandardCharsets.UTF_8)); }
    static Map<String, Object> m(Object... kv) {
        Map<String, Object> r = new LinkedHashMap<>();
        for (int i = 0; i < kv.length; i += 2) r.put((String) kv[i], kv[i + 1]);
        return r;
    }
    static void write(String name, Object o) throws Exception {
        String text = JSON.toJSONString(o, SerializerFeature.WriteMapNullValue, SerializerFeature.DisableCircularReferenceDetect, SerializerFeature.BrowserCompatible);
        Files.write(out.resolve(name), (text.replace("},{\"", "},\n{\"") + "\n").getBytes(StandardCharsets.UTF_8));
    }
    /** The frame as the netty encoder writes it. */
    static String frame(RemotingCommand c, SerializeType type) {
        c.setSerializeTypeCurrentRPC(type);
        ByteBuf buffer = Unpooled.buffer();
        c.fastEncodeHeader(buffer);
        if (c.getBody() != null) buffer.writeBytes(c.getBody());
        byte[] bytes = new byte[buffer.readableBytes()];
        buffer.readBytes(bytes);
        return hex(bytes);
    }
    static List<Field> all(Class<?> c) {
        List<Field> r = new ArrayList<>();
        for (; c != Object.class; c = c.getSuperclass()) for (Field f : c.getDeclaredFields()) if (!Modifier.isStatic(f.getModifiers())) { f.setAccessible(true); r.add(f); }
        return r;
    }
    static Object value(Field f) {
        Class<?> t = f.getType();
        if (t == String.class) return "v-" + f.getName();
        if (t == int.class || t == Integer.class) return 7;
        if (t == long.class || t == Long.class) return 1700000000000L;
        if (t == boolean.class || t == Boolean.class) return true;
        if (t == double.class || t == Double.class) return 0.25;
        return null;  // Java itself can not decode such a field
    }
    static RemotingCommand request(CommandCustomHeader h) {
        RemotingCommand c = RemotingCommand.createRequestCommand(12, h);
        c.setOpaque(34);
        c.setVersion(409);
        return c;
    }
    static void headers(Path model) throws Exception {
        Map<String, Object> names = JSON.parseObject(new String(Files.readAllBytes(model), StandardCharsets.UTF_8));
        List<Object> rows = new ArrayList<>();
        for (String name : new TreeSet<>(names.keySet())) {
            Class<?> k = Class.forName(name);
            if (!CommandCustomHeader.class.isAssignableFrom(k)) continue;
            for (boolean full : new boolean[]{true, false}) {
                Map<String, String> fields = new TreeMap<>();
                CommandCustomHeader[] h = new CommandCustomHeader[2];
                for (int i = 0; i < 2; i++) {
                    h[i] = (CommandCustomHeader) k.getDeclaredConstructor().newInstance();
                    for (Field f : all(k)) {
                        if (full || f.isAnnotationPresent(org.apache.rocketmq.remoting.annotation.CFNotNull.class)) f.set(h[i], value(f));
                        if (f.get(h[i]) != null) fields.put(f.getName(), String.valueOf(f.get(h[i])));
                    }
                }
                rows.add(m("class", name, "full", full, "fields", fields, "json", frame(request(h[0]), SerializeType.JSON), "rocketmq", frame(request(h[1]), SerializeType.ROCKETMQ)));
            }
        }
        write("remoting_headers.json", rows);
    }
    interface Make { RemotingCommand make() throws Exception; }
    static void command(List<Object> rows, String name, Make make) throws Exception {
        RemotingCommand c = make.make(), d = make.make();
        Map<String, Object> row = m("name", name, "code", c.getCode(), "language", c.getLanguage().name(), "version", c.getVersion(), "opaque", c.getOpaque(), "flag", c.getFlag(),
            "remark", c.getRemark(), "ext", c.getExtFields() == null ? null : new TreeMap<>(c.getExtFields()), "body", c.getBody() == null ? null : hex(c.getBody()),
            "header", c.readCustomHeader() == null ? null : c.readCustomHeader().getClass().getSimpleName());
        Map<String, String> fields = new TreeMap<>();
        if (c.readCustomHeader() != null) for (Field f : all(c.readCustomHeader().getClass())) if (f.get(c.readCustomHeader()) != null) fields.put(f.getName(), String.valueOf(f.get(c.readCustomHeader())));
        row.put("fields", fields);
        row.put("json", frame(c, SerializeType.JSON));
        row.put("rocketmq", frame(d, SerializeType.ROCKETMQ));
        rows.add(row);
    }
    static SendMessageRequestHeader send(String topic, String properties) {
        SendMessageRequestHeader h = new SendMessageRequestHeader();
        h.setProducerGroup("PG"); h.setTopic(topic); h.setDefaultTopic("TBW102"); h.setDefaultTopicQueueNums(4); h.setQueueId(3); h.setSysFlag(0);
        h.setBornTimestamp(1700000000000L); h.setFlag(0); h.setProperties(properties); h.setReconsumeTimes(0); h.setUnitMode(false); h.setBatch(false);
        return h;
    }
    static RemotingCommand response(int code, String remark, Class<? extends CommandCustomHeader> k) {
        RemotingCommand c = RemotingCommand.createResponseCommand(code, remark, k);
        c.setOpaque(-5); c.setVersion(409);
        return c;
    }
    static String characters() {
        StringBuilder b = new StringBuilder();
        for (int i = 0; i < 0x180; i++) b.append((char) i);
        return b.append("\u2027\u2028\u2029\u202a\u4e2d\u6587/<>&'\ufeff\ud83d\ude00").toString();
    }
    static void commands() throws Exception {
        List<Object> rows = new ArrayList<>();
        command(rows, "no header", () -> request(null));
        command(rows, "body", () -> { RemotingCommand c = request(null); c.setBody(new byte[]{0, 1, -1}); return c; });
        command(rows, "one-way", () -> { RemotingCommand c = request(null); c.markOnewayRPC(); return c; });
        command(rows, "send v2", () -> request(SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(send("TopicTest", "KEYS\001k1\002WAIT\001true\002TAGS\001TagA"))));
        command(rows, "send v2 with broker", () -> { SendMessageRequestHeader h = send("TopicTest", "WAIT\001true"); h.setBname("broker-a"); h.setMaxReconsumeTimes(16); return request(SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(h)); });
        command(rows, "send v1", () -> request(send("TopicTest", "WAIT\001true")));
        command(rows, "send with all characters", () -> request(send("\u4e2d\u6587", characters())));
        command(rows, "send response", () -> { RemotingCommand c = response(0, null, SendMessageResponseHeader.class); SendMessageResponseHeader h = (SendMessageResponseHeader) c.readCustomHeader(); h.setMsgId("7F00000100002A9F0000000000000000"); h.setQueueId(1); h.setQueueOffset(100L); return c; });
        command(rows, "send response with transaction and fields", () -> { RemotingCommand c = response(0, null, SendMessageResponseHeader.class); SendMessageResponseHeader h = (SendMessageResponseHeader) c.readCustomHeader(); h.setMsgId("7F00000100002A9F0000000000000000"); h.setQueueId(1); h.setQueueOffset(100L); h.setTransactionId("T"); c.addExtField("MSG_REGION", "DefaultRegion"); c.addExtField("TRACE_ON", "true"); return c; });
        command(rows, "pull response", () -> { RemotingCommand c = response(0, "FOUND", PullMessageResponseHeader.class); PullMessageResponseHeader h = (PullMessageResponseHeader) c.readCustomHeader(); h.setSuggestWhichBrokerId(0L); h.setNextBeginOffset(32L); h.setMinOffset(0L); h.setMaxOffset(Long.MAX_VALUE); c.setBody("records".getBytes()); return c; });
        command(rows, "error response", () -> response(1, characters(), null));
        command(rows, "empty remark", () -> response(0, "", null));
        command(rows, "empty header", () -> response(0, null, EndTransactionResponseHeaderOrOther.pick()));
        command(rows, "ext fields", () -> { RemotingCommand c = request(null); c.addExtField("Signature", "s\"g"); c.addExtField("AccessKey", "k"); c.addExtField("OnsChannel", "\u00fc"); c.addExtField("empty", ""); return c; });
        command(rows, "many ext fields", () -> { RemotingCommand c = request(null); for (int i = 0; i < 40; i++) c.addExtField("key-" + i, "" + i); return c; });
        command(rows, "language and negative numbers", () -> { RemotingCommand c = request(null); c.setLanguage(LanguageCode.CPP); c.setCode(-1); c.setOpaque(Integer.MIN_VALUE); c.setFlag(-1); c.setVersion(0); return c; });
        write("remoting_commands.json", rows);
    }
    static class EndTransactionResponseHeaderOrOther { static Class<? extends CommandCustomHeader> pick() { return EndTransactionResponseHeader.class; } }
    public static class Beans {
        public List<MessageQueue> getL() { return Arrays.asList(new MessageQueue("t", "b", 1), new MessageQueue("t", "b", 2)); }
        public Set<String> getS() { return new LinkedHashSet<>(Arrays.asList("x", "y")); }
        public String[] getSarr() { return new String[]{"a", "b"}; }
        public Set<MessageQueue> getMqs() { return new HashSet<>(Arrays.asList(new MessageQueue("t", "b", 1))); }
        public double[] getD() { return new double[]{1.5, 1e20, 0.0001, 100, 0, -0.0, 0.001, 9999999.5, 1e7, -1.25e-9, 123456789.125, Double.NaN}; }
        public double getInf() { return Double.POSITIVE_INFINITY; }
        public Boolean getB() { return true; }
        public byte[] getBytes() { return new byte[]{1, 2, 3, (byte) 255}; }
        public AtomicLong getAl() { return new AtomicLong(7); }
        public long getBig() { return Long.MAX_VALUE; }
        public String getNothing() { return null; }
        public Map<String, List<Integer>> getMl() { Map<String, List<Integer>> m = new TreeMap<>(); m.put("a", Arrays.asList(1, 2)); m.put("b", new LinkedList<>()); return m; }
        public Map<Integer, MessageQueue> getImq() { Map<Integer, MessageQueue> m = new TreeMap<>(); m.put(1, new MessageQueue("t", "b", 1)); m.put(2, new MessageQueue("t", "b", 2)); return m; }
        public Map<MessageQueue, Long> getMm() { Map<MessageQueue, Long> m = new TreeMap<>(); m.put(new MessageQueue("t", "b", 1), 5L); m.put(new MessageQueue("t", "b", 2), 6L); return m; }
        public Map<String, String> getMn() { Map<String, String> m = new TreeMap<>(); m.put("a", null); m.put("b", "x"); return m; }
        public Map<Long, Long> getLl() { Map<Long, Long> m = new LinkedHashMap<>(); m.put(1L, null); m.put(20L, 3000000000L); m.put(3L, 1L); return m; }
        public Map<Boolean, String> getBb() { Map<Boolean, String> m = new TreeMap<>(); m.put(true, "t"); return m; }
        public LanguageCode getLang() { return LanguageCode.JAVA; }
    }
    public static class Nulls { public String getA() { return null; } }
    static void text(Map<String, Object> rows, String name, Object o) {
        rows.put(name, m("compact", hex(JSON.toJSONString(o, false)), "pretty", hex(JSON.toJSONString(o, true)),
            "standard", hex(JSON.toJSONString(o, SerializerFeature.BrowserCompatible, SerializerFeature.QuoteFieldNames, SerializerFeature.SkipTransientField, SerializerFeature.MapSortField))));
    }
    static void fastjson() throws Exception {
        Map<String, Object> rows = new TreeMap<>();
        Map<String, String> texts = new LinkedHashMap<>();
        texts.put("k", characters());
        texts.put(characters(), "v");
        text(rows, "characters", texts);
        text(rows, "beans", new Beans());
        text(rows, "nulls", new Nulls());
        text(rows, "empty", m("map", new HashMap<>(), "list", new ArrayList<>(), "set", new HashSet<>()));
        text(rows, "nested", Arrays.asList(m("a", 1), new ArrayList<>(), Arrays.asList(1, Arrays.asList("x")), "s", 5L, null));
        TopicConfigSerializeWrapper w = new TopicConfigSerializeWrapper();
        w.getTopicConfigTable().put("T", new TopicConfig("T"));
        w.getDataVersion().setTimestamp(1000);
        w.getDataVersion().setCounter(new AtomicLong(3));
        text(rows, "topics", w);
        Map<String, Object> offsets = new LinkedHashMap<>(), table = new LinkedHashMap<>();
        ConcurrentMap<Integer, Long> queues = new ConcurrentHashMap<>();
        queues.put(0, 100L); queues.put(1, 100L);
        table.put("T@g", queues); table.put("e@g", new ConcurrentHashMap<>());
        offsets.put("offsetTable", table);
        text(rows, "offsets", offsets);
        HashMap<Long, String> addrs = new HashMap<>();
        addrs.put(0L, "127.0.0.1:10911"); addrs.put(10L, "127.0.0.1:10921"); addrs.put(2L, "127.0.0.1:10931");
        TopicRouteData route = new TopicRouteData();
        route.setBrokerDatas(new ArrayList<>(Arrays.asList(new BrokerData("c\u00fc", "b", addrs))));
        route.setQueueDatas(new ArrayList<>());
        text(rows, "route", route);
        write("remoting_fastjson.json", Arrays.asList(rows));
    }
    public static void main(String[] a) throws Exception {
        out = Paths.get(a[1]);
        headers(Paths.get(a[0]));
        commands();
        fastjson();
    }
}
