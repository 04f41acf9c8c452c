package org.rmqha.driver;

import java.nio.ByteBuffer;

/** Message bodies that are reproducible from (seed, index, size); tests/support/load.py is the twin. */
final class Bodies {
    private static final int PERIOD = 1009;
    private final byte[] table = new byte[PERIOD];

    Bodies(int seed) {
        long x = seed;
        for (int i = 0; i < PERIOD; i++) {
            x = (x * 1103515245L + 12345L) & 0x7FFFFFFFL;
            table[i] = (byte) (x >> 16);
        }
    }

    /** A body of 8 bytes or more begins with its index (big-endian); the rest is the table, rotated by the index. */
    byte[] of(long index, int size) {
        byte[] body = new byte[size];
        int from = (int) (index * 31 % PERIOD);
        for (int at = 0; at < size; ) {
            int n = Math.min(PERIOD - from, size - at);
            System.arraycopy(table, from, body, at, n);
            at += n;
            from = 0;
        }
        if (size >= 8) {
            ByteBuffer.wrap(body).putLong(index);
        }
        return body;
    }
}
