/* The common part of the C sources: their version, the layouts of a record, of a simple send and of its binary header,
 * and UTF-8.
 *
 * Names equal Python's where Python has one: see the table in rmqha/common/message/message_layout.py for the fields of
 * a record, and MessageRow for those of a send. tests/native/test_kernels.py compares each number with Python's.
 */
#ifndef RMQHA_NATIVE_H
#define RMQHA_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* The version of the functions, their arguments and their results. Increase it with every change of them, here and in
 * kernels.py, which does not use an extension of another version. */
#define VERSION 8

/* -- a record of the commit log: numbers are big-endian; the positions are those with IPv4 hosts -- */

#define MESSAGE_MAGIC_CODE 0xDAA320A7u
#define BLANK_MAGIC_CODE 0xCBD43194u
#define MESSAGE_MAGIC_CODE_POSITION 4
#define BODY_CRC_POSITION 8
#define QUEUE_ID_POSITION 12
#define MESSAGE_FLAG_POSITION 16
#define QUEUE_OFFSET_POSITION 20
#define PHYSICAL_OFFSET_POSITION 28
#define SYSFLAG_POSITION 36
#define BORN_TIMESTAMP_POSITION 40
#define BORN_HOST_POSITION 48
#define STORE_TIMESTAMP_POSITION 56
#define STORE_HOST_POSITION 64
#define RECONSUME_TIMES_POSITION 72
#define PREPARED_TRANSACTION_OFFSET_POSITION 76
#define BODY_LENGTH_POSITION 84
#define HEAD_LENGTH 88
#define HOST_LENGTH 8
#define LENGTHS_SIZE 3 /* bytes of the topic length and the properties length */
#define MORE_IN_V6 12 /* bytes by which an IPv6 host exceeds HOST_LENGTH */
#define MIN_RECORD_LENGTH 91
#define END_FILE_MIN_BLANK_LENGTH 8
#define MAX_TOPIC_LENGTH 127
#define MAX_PROPERTIES_LENGTH 32767
#define CRC_MASK 0x7FFFFFFFu

#define TRANSACTION_PREPARED_TYPE 0x4u
#define TRANSACTION_ROLLBACK_TYPE 0xCu
#define BORNHOST_V6_FLAG 0x10u
#define STOREHOSTADDRESS_V6_FLAG 0x20u

/* -- a simple send: the indexes of a MessageRow -- */

enum {
    SEND_TOPIC, SEND_QUEUE_ID, SEND_QUEUE_KEY, SEND_SIZE, SEND_CRC, SEND_FLAG, SEND_SYS_FLAG, SEND_BORN_TIMESTAMP,
    SEND_BORN_HOST, SEND_RECONSUME_TIMES, SEND_BODY, SEND_TAIL, SEND_FIELDS
};

/* -- its binary header: the part before the fields, and the part before each field's value -- */

#define SEND_MESSAGE_V2 310
#define HEADER_CODE_POSITION 0
#define HEADER_OPAQUE_POSITION 5
#define HEADER_FLAG_POSITION 9
#define HEADER_REMARK_POSITION 13
#define HEADER_FIELDS_POSITION 17
#define HEADER_FIXED_LENGTH 21
#define FIELD_NAME_POSITION 2
#define FIELD_LENGTH_POSITION 3
#define FIELD_VALUE_POSITION 7

/* -- numbers -- */

static inline void put32(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)(value >> 24), p[1] = (uint8_t)(value >> 16), p[2] = (uint8_t)(value >> 8), p[3] = (uint8_t)value;
}

static inline void put64(uint8_t *p, int64_t value)
{
    put32(p, (uint32_t)((uint64_t)value >> 32));
    put32(p + 4, (uint32_t)value);
}

/* -- text -- */

/* Return the length of the UTF-8 sequence at p, and set its code point. `room` bytes, at least one, are available. If
 * it is not UTF-8, return minus the number of bytes that one U+FFFD replaces: the valid beginning, at least one. */
static inline int utf8_sequence(const uint8_t *p, int64_t room, uint32_t *code_point)
{
    uint32_t first = p[0], low = 0x80, high = 0xBF;
    int length;
    if (first >= 0xC2 && first <= 0xDF) {
        length = 2, *code_point = first & 0x1F;
    } else if (first >= 0xE0 && first <= 0xEF) {
        length = 3, *code_point = first & 0x0F;
        if (first == 0xE0) low = 0xA0;
        if (first == 0xED) high = 0x9F;
    } else if (first >= 0xF0 && first <= 0xF4) {
        length = 4, *code_point = first & 0x07;
        if (first == 0xF0) low = 0x90;
        if (first == 0xF4) high = 0x8F;
    } else {
        return -1;
    }
    for (int at = 1; at < length; at++, low = 0x80, high = 0xBF) {
        if (at >= room)
            return -at;
        uint32_t byte = p[at];
        if (byte < low || byte > high)
            return -at;
        *code_point = *code_point << 6 | (byte & 0x3F);
    }
    return length;
}

/* -- modules -- */

/* Return the module with its VERSION; NULL with an exception set. */
static inline PyObject *module_of_this_version(struct PyModuleDef *definition)
{
    PyObject *module = PyModule_Create(definition);
    if (module && PyModule_AddIntConstant(module, "VERSION", VERSION) < 0)
        Py_CLEAR(module);
    return module;
}

#endif
