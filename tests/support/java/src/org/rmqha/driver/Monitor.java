package org.rmqha.driver;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeMap;
import org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.tools.monitor.DeleteMsgsEvent;
import org.apache.rocketmq.tools.monitor.FailedMsgs;
import org.apache.rocketmq.tools.monitor.MonitorConfig;
import org.apache.rocketmq.tools.monitor.MonitorListener;
import org.apache.rocketmq.tools.monitor.MonitorService;
import org.apache.rocketmq.tools.monitor.UndoneMsgs;

/** One round of mqadmin startMonitoring, run immediately: the command's first round begins after 20 s. */
final class Monitor implements MonitorListener {
    private final List<String> heard = Collections.synchronizedList(new ArrayList<>());

    /** The calls of the listener, one line each. */
    static JSONObject run(JSONObject command) throws Exception {
        MonitorConfig config = new MonitorConfig();
        config.setNamesrvAddr(command.getString("namesrv"));
        Monitor listener = new Monitor();
        MonitorService service = new MonitorService(config, listener, null);
        service.start();
        try {
            service.doMonitorWork();
        } finally {
            service.shutdown();
        }
        return new JSONObject().fluentPut("heard", new ArrayList<>(listener.heard));
    }

    @Override
    public void beginRound() {
        heard.add("begin");
    }

    @Override
    public void reportUndoneMsgs(UndoneMsgs undone) {
        heard.add(undone.toString());
    }

    @Override
    public void reportFailedMsgs(FailedMsgs failed) {
        heard.add(failed.toString());
    }

    @Override
    public void reportDeleteMsgsEvent(DeleteMsgsEvent event) {
        heard.add(event.toString());
    }

    @Override
    public void reportConsumerRunningInfo(TreeMap<String, ConsumerRunningInfo> infos) {
        infos.values().forEach(info -> heard.add("running in group " + info.getProperties().getProperty("consumerGroup")));
    }

    @Override
    public void endRound() {
        heard.add("end");
    }
}
