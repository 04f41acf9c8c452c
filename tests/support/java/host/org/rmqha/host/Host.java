package org.rmqha.host;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.namesrv.NamesrvStartup;

/**
 * One JVM with many brokers and name servers. Requests on stdin, words separated by tabs: "start", number, "broker" or
 * "namesrv", config file; "end", number. Answers on stdout, in any order: number, request, and "" or the error.
 */
public final class Host {
    private static final PrintStream OUT = System.out;
    private static final Object START_LOCK = new Object();
    private static final Map<String, Runnable> ENDS = new ConcurrentHashMap<>();

    private interface Work {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            Work work = words[0].equals("start") ? () -> start(words[1], words[2], words[3]) : () -> end(words[1]);
            Thread thread = new Thread(() -> serve(words[1], words[0], work), words[0] + "-" + words[1]);
            thread.setDaemon(true);
            thread.start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void serve(String number, String asked, Work work) {
        String wrong = "";
        try {
            work.run();
        } catch (Throwable e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            wrong = trace.toString().replace('\t', ' ').replace('\n', '\r');
        }
        byte[] line = (number + "\t" + asked + "\t" + wrong + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(line, 0, line.length);
            OUT.flush();
        }
    }

    /** Starts a server; one start at a time, because starts use static fields. */
    private static void start(String number, String what, String config) throws Exception {
        synchronized (START_LOCK) {
            String[] words = {"-c", config};
            if (what.equals("namesrv")) {
                NamesrvController controller = NamesrvStartup.main0(words);
                ENDS.put(number, controller::shutdown);
            } else {
                BrokerController controller = BrokerStartup.createBrokerController(words);
                ENDS.put(number, controller::shutdown);
                BrokerStartup.start(controller);
            }
        }
    }

    private static void end(String number) {
        ENDS.remove(number).run();
    }
}
