import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.lang.reflect.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.jar.*;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.admin.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.protocol.*;
import org.apache.rocketmq.common.protocol.body.*;
import org.apache.rocketmq.common.protocol.heartbeat.*;
import org.apache.rocketmq.common.protocol.route.*;
import org.apache.rocketmq.common.protocol.topic.OffsetMovedEvent;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.common.sysflag.*;
import org.apache.rocketmq.remoting.protocol.*;
import org.apache.rocketmq.remoting.annotation.CFNotNull;

/** Prints what the real models look like, for tests/golden/model_*.json: ModelGolden FOLDER ROCKETMQ_COMMON_JAR. */
public class ModelGolden {
    static Path out;
    static String hex(byte[] b) { return UtilAll.bytes2string(b).toLowerCase(); }
    static void write(String name, Object o) throws Exception {
        Files.write(out.resolve(name), (JSON.toJSONString(o, SerializerFeature.MapSortField, SerializerFeature.WriteMapNullValue) + "\n").getBytes(StandardCharsets.UTF_8));
    }
    static Map<String, Object> m(Object... kv) {
        Map<String, Object> r = new LinkedHashMap<>();
        for (int i = 0; i < kv.length; i += 2) r.put((String) kv[i], kv[i + 1]);
        return r;
    }
    static Object pair(List<String> names, List<String> values) {
        Map<String, String> map = new HashMap<>();
        for (int i = 0; i < names.size(); i++) map.put(names.get(i), values.get(i));
        return m("names", names, "values", values, "text", MessageDecoder.messageProperties2String(map));
    }
    static void properties() throws Exception {
        List<Object> cases = new ArrayList<>();
        cases.add(pair(Arrays.asList(), Arrays.asList()));
        cases.add(pair(Arrays.asList("WAIT"), Arrays.asList("true")));
        cases.add(pair(Arrays.asList("KEYS", "TAGS", "WAIT", "UNIQ_KEY", "CLUSTER"), Arrays.asList("k1 k2", "t", "true", "7F0000010001", "DefaultCluster")));
        cases.add(pair(Arrays.asList("a", "b"), Arrays.asList("x", null)));
        cases.add(pair(Arrays.asList("\u00e4\u00f6", "\u4e2d\u6587", "\ud83d\ude00"), Arrays.asList("\u00fc", "\u503c", "\ud83d\ude01")));
        cases.add(pair(Arrays.asList("", "empty"), Arrays.asList("v", "")));
        List<String> all = new ArrayList<>(); List<String> vals = new ArrayList<>();
        for (Field f : MessageConst.class.getFields()) if (f.getType() == String.class && f.getName().startsWith("PROPERTY_")) { all.add((String) f.get(null)); vals.add("v" + all.size()); }
        cases.add(pair(all, vals));
        Random r = new Random(498);
        for (int n = 0; n < 50; n++) {
            List<String> names = new ArrayList<>(), values = new ArrayList<>();
            int count = r.nextInt(n < 30 ? 14 : 40);
            for (int i = 0; i < count; i++) {
                StringBuilder sb = new StringBuilder();
                int len = 1 + r.nextInt(n % 3 == 0 ? 2 : 12);
                for (int j = 0; j < len; j++) sb.append((char) (n % 5 == 0 ? 0x4e00 + r.nextInt(500) : 'A' + r.nextInt(40)));
                names.add(sb.toString()); values.add("" + i);
            }
            cases.add(pair(names, values));
        }
        List<Object> parsed = new ArrayList<>();
        for (String s : new String[] {"", "a\u0001b", "a\u0001b\u0002", "a\u0001b\u0002c\u0001d", "a\u0001\u0002c\u0001d", "\u0001b\u0002c\u0001d", "ab\u0002c\u0001d", "a\u0001b\u0001c\u0002", "\u0002\u0002a\u0001b", "a\u0001b\u0002a\u0001c", "abc\u0002d\u0001e", "a\u0001\ud83d\ude00", "\ud83d\ude00\u0001b", "a\u0001", "abc\u0001", "\u0001\u0001\u0001", "a\u0001\u0001\u0002", "x\u0002a\u0001bb\u0002yy\u0001"})
            parsed.add(m("text", s, "map", new TreeMap<>(MessageDecoder.string2messageProperties(s))));
        write("model_properties.json", m("written", cases, "parsed", parsed));
    }
    static MessageExt ext(String born, String store, int flag, byte[] body) throws Exception {
        MessageExt e = new MessageExt();
        e.setTopic("TopicTest"); e.setBody(body); e.setBodyCRC(UtilAll.crc32(body)); e.setFlag(7); e.setQueueId(3); e.setQueueOffset(123456789012L);
        e.setCommitLogOffset(9876543210L); e.setSysFlag(flag); e.setBornTimestamp(1700000000123L); e.setStoreTimestamp(1700000000456L);
        e.setBornHost(new InetSocketAddress(InetAddress.getByName(born), 40001)); e.setStoreHost(new InetSocketAddress(InetAddress.getByName(store), 10911));
        e.setReconsumeTimes(2); e.setPreparedTransactionOffset(55);
        e.setKeys("k1 k2"); e.setTags("TagA"); e.putUserProperty("user", "\u503c"); MessageAccessor.putProperty(e, "UNIQ_KEY", "7F00000100012A9F0000000000000001");
        return e;
    }
    static void records() throws Exception {
        byte[] body = "Hello RocketMQ \u4e2d".getBytes(StandardCharsets.UTF_8);
        byte[] big = new byte[300]; Arrays.fill(big, (byte) 'z');
        List<Object> cases = new ArrayList<>();
        Object[][] in = {{"10.1.2.3", "192.168.0.1", 0, body, false}, {"fe80::1:2", "10.0.0.1", 0x10, body, false}, {"10.0.0.1", "2001:db8::5", 0x20, body, false}, {"::1", "2001:db8::5", 0x30, body, false},
            {"10.1.2.3", "192.168.0.1", 0x1, big, true}, {"10.1.2.3", "192.168.0.1", 0x301, big, true}, {"10.1.2.3", "192.168.0.1", 0x101, big, true}, {"10.1.2.3", "192.168.0.1", 0x201, big, true}, {"10.1.2.3", "192.168.0.1", 8, new byte[0], false}};
        for (Object[] c : in) {
            MessageExt e = ext((String) c[0], (String) c[1], (Integer) c[2], (byte[]) c[3]);
            byte[] enc = MessageDecoder.encode(e, (Boolean) c[4]);
            MessageExt d = MessageDecoder.decode(ByteBuffer.wrap(enc));
            cases.add(m("bornHost", c[0], "storeHost", c[1], "sysFlag", c[2], "body", hex((byte[]) c[3]), "bodyCrc", e.getBodyCRC(), "compress", c[4], "record", hex(enc), "msgId", d.getMsgId(), "offsetProperties", new TreeMap<>(d.getProperties())));
        }
        List<Object> ids = new ArrayList<>();
        for (Object[] c : new Object[][] {{"127.0.0.1", 10911, 0L}, {"192.168.1.200", 65535, 123456789012L}, {"2001:db8::1", 1, Long.MAX_VALUE}, {"10.0.0.1", 0, -1L}})
            ids.add(m("host", c[0], "port", c[1], "offset", c[2], "id", MessageDecoder.createMessageId(new InetSocketAddress(InetAddress.getByName((String) c[0]), (Integer) c[1]), (Long) c[2])));
        Message a = new Message("TopicTest", "TagA", "key1", "body-1".getBytes()); a.setFlag(5);
        Message b = new Message("TopicTest", "body-2".getBytes()); b.putUserProperty("color", "red");
        Message e = new Message("TopicTest", new byte[0]);
        write("model_records.json", m("records", cases, "messageIds", ids, "batch", hex(MessageDecoder.encodeMessages(Arrays.asList(a, b, e)))));
    }
    static String json(RemotingSerializable o) { return RemotingSerializable.toJson(o, false); }
    static DataVersion version() { DataVersion v = new DataVersion(); v.setTimestamp(1700000000000L); v.setCounter(new java.util.concurrent.atomic.AtomicLong(42)); return v; }
    static TopicConfigSerializeWrapper topics() {
        TopicConfigSerializeWrapper w = new TopicConfigSerializeWrapper(); w.setDataVersion(version());
        TopicConfig t1 = new TopicConfig("TopicTest", 4, 8, 6); t1.setOrder(true); t1.setTopicSysFlag(3);
        TopicConfig t2 = new TopicConfig("%RETRY%group", 1, 1, 2); t2.setTopicFilterType(TopicFilterType.MULTI_TAG);
        w.getTopicConfigTable().put(t1.getTopicName(), t1); w.getTopicConfigTable().put(t2.getTopicName(), t2); return w;
    }
    static SubscriptionData sub() throws Exception { SubscriptionData s = FilterAPI.buildSubscriptionData("TopicTest", "TagA"); s.setSubVersion(1700000000001L); return s; }
    static void bodies() throws Exception {
        Map<String, Object> r = new TreeMap<>();
        r.put("TopicConfigSerializeWrapper", json(topics()));
        RegisterBrokerBody rb = new RegisterBrokerBody(); rb.setTopicConfigSerializeWrapper(topics()); rb.setFilterServerList(Arrays.asList("10.0.0.1:1", "10.0.0.2:2"));
        r.put("RegisterBrokerBody", json(rb));
        HeartbeatData h = new HeartbeatData(); h.setClientID("10.0.0.1@1");
        ProducerData p = new ProducerData(); p.setGroupName("pg"); h.getProducerDataSet().add(p);
        ConsumerData c = new ConsumerData(); c.setGroupName("cg"); c.setConsumeType(ConsumeType.CONSUME_PASSIVELY); c.setMessageModel(MessageModel.CLUSTERING); c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET); c.getSubscriptionDataSet().add(sub()); c.setUnitMode(true); h.getConsumerDataSet().add(c);
        r.put("HeartbeatData", json(h));
        HashMap<Long, String> addrs = new HashMap<>(); addrs.put(0L, "10.0.0.1:10911"); addrs.put(1L, "10.0.0.2:10911");
        TopicRouteData t = new TopicRouteData(); QueueData q = new QueueData(); q.setBrokerName("broker-a"); q.setReadQueueNums(4); q.setWriteQueueNums(8); q.setPerm(6); q.setTopicSysFlag(1);
        BrokerData bd = new BrokerData("DefaultCluster", "broker-a", addrs); t.setQueueDatas(Arrays.asList(q)); t.setBrokerDatas(Arrays.asList(bd)); HashMap<String, List<String>> fs = new HashMap<>(); fs.put("10.0.0.1:10911", Arrays.asList("f")); t.setFilterServerTable(fs); t.setOrderTopicConf("broker-a:4");
        r.put("TopicRouteData", json(t));
        ClusterInfo ci = new ClusterInfo(); HashMap<String, BrokerData> bt = new HashMap<>(); bt.put("broker-a", bd); ci.setBrokerAddrTable(bt); HashMap<String, Set<String>> ct = new HashMap<>(); ct.put("DefaultCluster", new HashSet<>(Arrays.asList("broker-a"))); ci.setClusterAddrTable(ct);
        r.put("ClusterInfo", json(ci));
        SubscriptionGroupWrapper sg = new SubscriptionGroupWrapper(); sg.setDataVersion(version()); SubscriptionGroupConfig g = new SubscriptionGroupConfig(); g.setGroupName("cg"); g.setRetryMaxTimes(3); sg.getSubscriptionGroupTable().put("cg", g);
        r.put("SubscriptionGroupWrapper", json(sg));
        MessageQueue mq = new MessageQueue("TopicTest", "broker-a", 3);
        ConsumeStats cs = new ConsumeStats(); OffsetWrapper ow = new OffsetWrapper(); ow.setBrokerOffset(10); ow.setConsumerOffset(4); ow.setLastTimestamp(1700000000002L); cs.getOffsetTable().put(mq, ow); cs.setConsumeTps(1.5);
        r.put("ConsumeStats", json(cs));
        TopicStatsTable ts = new TopicStatsTable(); TopicOffset to = new TopicOffset(); to.setMinOffset(1); to.setMaxOffset(2); to.setLastUpdateTimestamp(3); ts.getOffsetTable().put(mq, to); r.put("TopicStatsTable", json(ts));
        LockBatchRequestBody lb = new LockBatchRequestBody(); lb.setClientId("cid"); lb.setConsumerGroup("cg"); lb.getMqSet().add(mq); r.put("LockBatchRequestBody", json(lb));
        LockBatchResponseBody lr = new LockBatchResponseBody(); lr.getLockOKMQSet().add(mq); r.put("LockBatchResponseBody", json(lr));
        ConsumerOffsetSerializeWrapper co = new ConsumerOffsetSerializeWrapper(); ConcurrentMap<Integer, Long> om = new ConcurrentHashMap<>(); om.put(0, 100L); om.put(1, 200L); co.getOffsetTable().put("TopicTest@cg", om); r.put("ConsumerOffsetSerializeWrapper", json(co));
        ConsumerConnection cc = new ConsumerConnection(); Connection cn = new Connection(); cn.setClientId("cid"); cn.setClientAddr("10.0.0.3:5"); cn.setLanguage(LanguageCode.JAVA); cn.setVersion(407); cc.getConnectionSet().add(cn); cc.getSubscriptionTable().put("TopicTest", sub()); cc.setConsumeType(ConsumeType.CONSUME_ACTIVELY); cc.setMessageModel(MessageModel.BROADCASTING); cc.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP); r.put("ConsumerConnection", json(cc));
        ProducerTableInfo pt = new ProducerTableInfo(Collections.singletonMap("pg", Arrays.asList(new ProducerInfo("cid", "10.0.0.4", LanguageCode.CPP, 1, 2L)))); r.put("ProducerTableInfo", json(pt));
        KVTable kv = new KVTable(); kv.getTable().put("k", "v"); r.put("KVTable", json(kv));
        ResetOffsetBody ro = new ResetOffsetBody(); ro.setOffsetTable(new HashMap<>(Collections.singletonMap(mq, 9L))); r.put("ResetOffsetBody", json(ro));
        MessageQueueForC mc = new MessageQueueForC("TopicTest", "broker-a", 3, 9); ResetOffsetBodyForC rc = new ResetOffsetBodyForC(); rc.setOffsetTable(Arrays.asList(mc)); r.put("ResetOffsetBodyForC", json(rc));
        GetConsumerStatusBody gs = new GetConsumerStatusBody(); gs.getMessageQueueTable().put(mq, 9L); gs.getConsumerTable().put("cid", Collections.singletonMap(mq, 9L)); r.put("GetConsumerStatusBody", json(gs));
        QueryConsumeTimeSpanBody qt = new QueryConsumeTimeSpanBody(); QueueTimeSpan qs = new QueueTimeSpan(); qs.setMessageQueue(mq); qs.setMinTimeStamp(1700000000001L); qs.setMaxTimeStamp(1700000000002L); qs.setConsumeTimeStamp(1700000000003L); qs.setDelayTime(4); qt.setConsumeTimeSpanSet(Arrays.asList(qs)); r.put("QueryConsumeTimeSpanBody", json(qt));
        QueryCorrectionOffsetBody qc = new QueryCorrectionOffsetBody(); qc.getCorrectionOffsets().put(1, 2L); r.put("QueryCorrectionOffsetBody", json(qc));
        BrokerStatsData bs = new BrokerStatsData(); BrokerStatsItem bi = new BrokerStatsItem(); bi.setSum(5); bi.setTps(0.25); bi.setAvgpt(3); bs.setStatsMinute(bi); bs.setStatsHour(bi); bs.setStatsDay(bi); r.put("BrokerStatsData", RemotingSerializable.toJson(bs, false));
        ConsumeMessageDirectlyResult cd = new ConsumeMessageDirectlyResult(); cd.setConsumeResult(CMResult.CR_LATER); cd.setRemark("r"); cd.setSpentTimeMills(8); r.put("ConsumeMessageDirectlyResult", json(cd));
        ConsumeStatsList cl = new ConsumeStatsList(); cl.setBrokerAddr("10.0.0.1:10911"); cl.setTotalDiff(6); cl.getConsumeStatsList().add(Collections.singletonMap("cg", Arrays.asList(cs))); r.put("ConsumeStatsList", json(cl));
        QueryConsumeQueueResponseBody qq = new QueryConsumeQueueResponseBody(); qq.setSubscriptionData(sub()); qq.setFilterData("f"); ConsumeQueueData cq = new ConsumeQueueData(); cq.setPhysicOffset(1); cq.setPhysicSize(2); cq.setTagsCode(3); cq.setExtendDataJson("e"); cq.setBitMap("b"); cq.setEval(true); cq.setMsg("m"); qq.setQueueData(Arrays.asList(cq)); qq.setMaxQueueIndex(7); qq.setMinQueueIndex(1); r.put("QueryConsumeQueueResponseBody", json(qq));
        TopicList tl = new TopicList(); tl.getTopicList().add("TopicTest"); tl.setBrokerAddr("10.0.0.1:10911"); r.put("TopicList", json(tl));
        GroupList gl = new GroupList(); gl.getGroupList().add("cg"); r.put("GroupList", json(gl));
        CheckClientRequestBody cr = new CheckClientRequestBody(); cr.setClientId("cid"); cr.setGroup("cg"); cr.setSubscriptionData(sub()); r.put("CheckClientRequestBody", json(cr));
        OffsetMovedEvent oe = new OffsetMovedEvent(); oe.setConsumerGroup("cg"); oe.setMessageQueue(mq); oe.setOffsetRequest(5); oe.setOffsetNew(6); r.put("OffsetMovedEvent", json(oe));
        ConsumerRunningInfo ri = new ConsumerRunningInfo(); ri.getProperties().put(ConsumerRunningInfo.PROP_CONSUME_TYPE, "CONSUME_PASSIVELY"); ri.getSubscriptionSet().add(sub()); ProcessQueueInfo pq = new ProcessQueueInfo(); pq.setCommitOffset(11); pq.setCachedMsgCount(2); pq.setLocked(true); ri.getMqTable().put(mq, pq); ConsumeStatus st = new ConsumeStatus(); st.setPullRT(1.25); st.setPullTPS(2.5); st.setConsumeOKTPS(1000.125); st.setConsumeFailedMsgs(4); ri.getStatusTable().put("TopicTest", st); ri.setJstack("stack"); r.put("ConsumerRunningInfo", json(ri));
        Map<String, Object> texts = new TreeMap<>(); texts.put("ConsumerRunningInfo.formatString", ri.formatString()); texts.put("TopicConfig.toString", topics().getTopicConfigTable().get("TopicTest").toString()); texts.put("DataVersion.toString", version().toString()); texts.put("MessageQueue.toString", mq.toString()); texts.put("SubscriptionData.toString", sub().toString());
        Object[] empty = {new TopicConfigSerializeWrapper(), new HeartbeatData(), new TopicRouteData(), new ConsumeStats(), new KVTable(), new TopicList(), new ConsumerConnection(), new ProducerConnection(), new QueryConsumeQueueResponseBody(), new ConsumeByWho(), new ClusterAclVersionInfo(), new UnlockBatchRequestBody(), new BrokerStatsData(), new ResetOffsetBody(), new ConsumerRunningInfo(), new ClusterInfo()};
        Map<String, Object> empties = new TreeMap<>(); for (Object o : empty) { empties.put(o.getClass().getSimpleName(), new TreeSet<>(((com.alibaba.fastjson.JSONObject) JSON.toJSON(o)).keySet())); }
        write("model_bodies.json", m("json", r, "texts", texts, "keys", empties, "registerCompressed", hex(rb.encode(true))));
        List<Object> subs = new ArrayList<>();
        for (String s : new String[] {"*", "", "TagA", "TagA || TagB", " a||b || ||c ", "\u4e2d\u6587", "a|b", "|||", "TagA||TagA"}) { SubscriptionData d = FilterAPI.buildSubscriptionData("t", s); subs.add(m("expression", s, "subString", d.getSubString(), "tags", new TreeSet<>(d.getTagsSet()), "codes", new TreeSet<>(d.getCodeSet()))); }
        List<Object> ns = new ArrayList<>();
        for (String s : new String[] {"T", "ns%T", "%RETRY%ns%g", "%RETRY%g", "%DLQ%ns%g", "%DLQ%g", "TBW102", "rmq_sys_x", "CID_ONSAPI_OWNER", "%T", "other%T", "", "SCHEDULE_TOPIC_XXXX", "CID_RMQ_SYS_x"})
            ns.add(m("resource", s, "without", NamespaceUtil.withoutNamespace(s), "withoutNs", NamespaceUtil.withoutNamespace(s, "ns"), "withoutNull", NamespaceUtil.withoutNamespace(s, null), "wrap", NamespaceUtil.wrapNamespace("ns", s), "wrapNull", NamespaceUtil.wrapNamespace(null, s), "retry", NamespaceUtil.wrapNamespaceAndRetry("ns", s), "namespace", NamespaceUtil.getNamespaceFromResource(s), "already", NamespaceUtil.isAlreadyWithNamespace(s, "ns")));
        write("model_names.json", m("subscriptions", subs, "namespaces", ns));
    }
    static Object constants(Class<?> c) throws Exception {
        Map<String, Object> r = new TreeMap<>();
        for (Field f : c.getFields()) if (Modifier.isStatic(f.getModifiers()) && (f.getType() == int.class || f.getType() == String.class)) r.put(f.getName(), f.get(null));
        return r;
    }
    static void headers(String jar) throws Exception {
        Map<String, Object> r = new TreeMap<>();
        try (JarFile j = new JarFile(jar)) {
            for (Enumeration<JarEntry> e = j.entries(); e.hasMoreElements();) {
                String n = e.nextElement().getName();
                if (!n.startsWith("org/apache/rocketmq/common/protocol/header/") || !n.endsWith(".class") || n.contains("$")) continue;
                Class<?> c = Class.forName(n.substring(0, n.length() - 6).replace('/', '.'));
                List<Object> fields = new ArrayList<>(); Object o = c.getDeclaredConstructor().newInstance();
                for (Class<?> k = c; k != Object.class; k = k.getSuperclass()) for (Field f : k.getDeclaredFields()) { if (Modifier.isStatic(f.getModifiers())) continue; f.setAccessible(true); Object v = f.get(o); fields.add(f.getType().getSimpleName() + (f.isAnnotationPresent(CFNotNull.class) ? "! " : " ") + f.getName() + (v == null ? "" : " = " + v)); }
                r.put(c.getName(), fields);
            }
        }
        write("model_headers.json", r);
        write("model_constants.json", m("RequestCode", constants(RequestCode.class), "ResponseCode", constants(ResponseCode.class), "MessageConst", constants(MessageConst.class), "reserved", new TreeSet<>(MessageConst.STRING_HASH_SET), "MessageSysFlag", constants(MessageSysFlag.class), "PermName", constants(org.apache.rocketmq.common.constant.PermName.class), "LoggerName", constants(org.apache.rocketmq.common.constant.LoggerName.class), "TopicValidator", constants(org.apache.rocketmq.common.topic.TopicValidator.class)));
    }
    public static void main(String[] a) throws Exception {
        out = Paths.get(a[0]);
        properties(); records(); bodies(); headers(a[1]);
    }
}
