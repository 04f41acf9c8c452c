package org.rmqha.driver;

import java.lang.reflect.Field;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin as in a new process: its commands are created each time, because some of them can run only once. */
final class FreshAdmin extends MQAdminStartup {
    private FreshAdmin() {
    }

    /** Credentials come from home/conf/tools.yml; without a home there are no credentials. */
    static void run(String[] args, String home) throws ReflectiveOperationException {
        Field rocketmqHome = MQAdminStartup.class.getDeclaredField("rocketmqHome");
        rocketmqHome.setAccessible(true);
        String before = (String) rocketmqHome.get(null);
        subCommandList.clear();
        try {
            rocketmqHome.set(null, home == null ? before : home);
            main0(args, null);
        } finally {
            rocketmqHome.set(null, before);
        }
    }
}
