package org.rmqha.driver;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.client.trace.TraceView;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageType;

/** The client's trace texts: written from fields, and read back. */
final class Traces {
    private Traces() {
    }

    /** "contexts": fields of TraceContext, "beans" of TraceBean in each -> "texts" and "keys" of each. */
    static JSONObject encode(JSONObject command) {
        JSONArray texts = new JSONArray();
        JSONArray keys = new JSONArray();
        for (Object one : command.getJSONArray("contexts")) {
            TraceTransferBean bean = TraceDataEncoder.encoderFromContextBean(context((JSONObject) one));
            texts.add(bean.getTransData());
            keys.add(new TreeSet<>(bean.getTransKey()));
        }
        return new JSONObject().fluentPut("texts", texts).fluentPut("keys", keys);
    }

    private static TraceContext context(JSONObject fields) {
        TraceContext context = new TraceContext();
        context.setTraceType(TraceType.valueOf(fields.getString("type")));
        context.setTimeStamp(fields.getLongValue("timeStamp"));
        context.setRegionId(fields.getString("regionId"));
        context.setGroupName(fields.getString("groupName"));
        context.setCostTime(fields.getIntValue("costTime"));
        context.setSuccess(fields.getBooleanValue("success"));
        context.setRequestId(fields.getString("requestId"));
        context.setContextCode(fields.getIntValue("contextCode"));
        context.setAccessChannel(AccessChannel.valueOf(fields.getString("accessChannel")));
        List<TraceBean> beans = new ArrayList<>();
        for (Object one : fields.getJSONArray("beans")) {
            beans.add(bean((JSONObject) one));
        }
        context.setTraceBeans(beans);
        return context;
    }

    private static TraceBean bean(JSONObject fields) {
        TraceBean bean = new TraceBean();
        bean.setTopic(fields.getString("topic"));
        bean.setMsgId(fields.getString("msgId"));
        bean.setOffsetMsgId(fields.getString("offsetMsgId"));
        bean.setTags(fields.getString("tags"));
        bean.setKeys(fields.getString("keys"));
        bean.setStoreHost(fields.getString("storeHost"));
        bean.setRetryTimes(fields.getIntValue("retryTimes"));
        bean.setBodyLength(fields.getIntValue("bodyLength"));
        bean.setMsgType(MessageType.values()[fields.getIntValue("msgType")]);
        bean.setTransactionState(LocalTransactionState.valueOf(fields.getString("transactionState")));
        bean.setTransactionId(fields.getString("transactionId"));
        bean.setFromTransactionCheck(fields.getBooleanValue("fromTransactionCheck"));
        return bean;
    }

    /** "texts" -> "contexts": the result of the client's decoder for each, or the name of its exception. */
    static JSONObject decode(JSONObject command) {
        JSONArray results = new JSONArray();
        for (Object text : command.getJSONArray("texts")) {
            try {
                JSONArray contexts = new JSONArray();
                for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString((String) text)) {
                    TraceBean bean = context.getTraceBeans().get(0);
                    bean.setClientHost(null);
                    JSONObject fields = JSON.parseObject(JSON.toJSONString(context, SerializerFeature.WriteMapNullValue));
                    contexts.add(fields);
                }
                results.add(contexts);
            } catch (RuntimeException e) {
                results.add(e.getClass().getSimpleName());
            }
        }
        return new JSONObject().fluentPut("contexts", results);
    }

    /** "body" and "key" -> "views": the events of a message as the admin tools show them. */
    static JSONObject views(JSONObject command) {
        MessageExt message = new MessageExt();
        message.setBody(command.getString("body").getBytes(StandardCharsets.UTF_8));
        message.setBornHost(new java.net.InetSocketAddress("127.0.0.1", 1));
        return new JSONObject().fluentPut("views", TraceView.decodeFromTraceTransData(command.getString("key"), message));
    }
}
