package org.rmqha.driver;

import com.alibaba.fastjson.JSONObject;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer that runs until "until" distinct messages have arrived (and lingerMs more, for repeats) or the deadline has passed. */
final class Consume {
    private Consume() {
    }

    static JSONObject run(JSONObject command, Driver.Progress progress) throws Exception {
        Checks checks = new Checks(command);
        int until = command.getIntValue("until");
        int every = Math.max(1, command.getIntValue("progressEvery"));
        CountDownLatch all = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        Driver.pointToCluster(consumer, command);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.subscribe(command.getString("topic"), command.getString("expression"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                int distinct = checks.take(message);
                if (distinct % every == 0) {
                    progress.at(distinct);
                }
                if (distinct >= until) {
                    all.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            all.await(command.getLongValue("deadlineMs"), TimeUnit.MILLISECONDS);
            Thread.sleep(command.getLongValue("lingerMs"));
        } finally {
            consumer.shutdown();
        }
        return checks.report();
    }
}
