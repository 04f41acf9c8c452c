package org.rmqha.integration;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.test.base.BaseConf;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs RocketMQ's integration tests, class after class, in one JVM: one command per line on stdin ("class", perhaps one
 * "method" of it, "namesrv", "cluster", "brokers", "consumeMillis"), on stdout a line for each test as it ends
 * ("test", "result", "seconds", "note") and finally {"done": class}. A test that passes although sends failed is hollow.
 */
public final class Runner extends RunListener {
    private static final PrintStream OUT = System.out;
    private static final int NOTE = 400; // characters

    private String result;
    private String note;
    private long begin;

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // some tests print
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            run(JSON.parseObject(line));
        }
        Runtime.getRuntime().halt(0); // clients that a test left open have threads
    }

    private static void run(JSONObject order) throws ClassNotFoundException {
        BaseConf.use(order.getString("namesrv"), order.getString("cluster"),
            order.getJSONArray("brokers").toJavaList(String.class), order.getIntValue("consumeMillis"));
        Class<?> type = Class.forName(order.getString("class"));
        String method = order.getString("method");
        JUnitCore core = new JUnitCore();
        core.addListener(new Runner());
        core.run(method == null ? Request.aClass(type) : Request.method(type, method));
        say(new JSONObject().fluentPut("done", type.getName()));
    }

    @Override
    public void testStarted(Description test) {
        System.err.println("== " + test);
        result = "pass";
        note = "";
        begin = System.nanoTime();
        BaseConf.takeFailedSends();
    }

    @Override
    public void testFailure(Failure failure) {
        System.err.println("== " + failure + "\n" + failure.getTrace());
        if (failure.getDescription().isTest()) {
            result = "fail";
            note = described(failure);
        } else {
            end(failure.getDescription(), "fail", described(failure), System.nanoTime());
        }
    }

    @Override
    public void testAssumptionFailure(Failure failure) {
        result = "skip";
        note = described(failure);
    }

    @Override
    public void testIgnored(Description test) {
        end(test, "skip", "@Ignore", System.nanoTime());
    }

    @Override
    public void testFinished(Description test) {
        List<String> failed = BaseConf.takeFailedSends();
        if (result.equals("pass") && !failed.isEmpty()) {
            result = "hollow";
            note = failed.size() + " sends failed, the first: " + failed.get(0);
        }
        end(test, result, note, begin);
    }

    /** A failure or an @Ignore of a whole class has no method. */
    private static void end(Description test, String result, String note, long begin) {
        String name = test.getMethodName() == null ? "(class)" : test.getMethodName();
        say(new JSONObject(true).fluentPut("test", name).fluentPut("result", result)
            .fluentPut("seconds", (System.nanoTime() - begin) / 100_000_000 / 10.0)
            .fluentPut("note", note.length() > NOTE ? note.substring(0, NOTE) + "..." : note));
    }

    /** Returns the error, and the line of the test's class where it occurred. */
    private static String described(Failure failure) {
        Class<?> type = failure.getDescription().getTestClass();
        for (StackTraceElement frame : failure.getException().getStackTrace()) {
            if (type != null && frame.getClassName().startsWith(type.getName())) {
                return failure.getException() + " (" + frame.getFileName() + ":" + frame.getLineNumber() + ")";
            }
        }
        return String.valueOf(failure.getException());
    }

    private static synchronized void say(JSONObject line) {
        OUT.println(line.toJSONString());
        OUT.flush();
    }
}
