/* The encoder of records, compiled. Its twin and documentation is `records_in_python` in rmqha/store/append.py. */
#include "native.h"

/* The bytes of an IPv6 host. */
#define HOST_LENGTH_V6 (HOST_LENGTH + MORE_IN_V6)

static int is_host(PyObject *object)
{
    return PyBytes_Check(object)
        && (PyBytes_GET_SIZE(object) == HOST_LENGTH || PyBytes_GET_SIZE(object) == HOST_LENGTH_V6);
}

/* Write a host into its field, whose length depends on SYSFLAG. Truncate it or pad it with zeros, as `struct` does. */
static void put_host(uint8_t *out, PyObject *host, int is_v6)
{
    Py_ssize_t length = is_v6 ? HOST_LENGTH_V6 : HOST_LENGTH, given = PyBytes_GET_SIZE(host);
    if (given == HOST_LENGTH && length == HOST_LENGTH) {
        memcpy(out, PyBytes_AS_STRING(host), HOST_LENGTH);
        return;
    }
    memset(out, 0, (size_t)length);
    memcpy(out, PyBytes_AS_STRING(host), (size_t)(given < length ? given : length));
}

/* Read the numbers of a row into `numbers`, each at its index. Return -1 with an exception set. */
static int read_numbers(PyObject *row, int64_t *numbers)
{
    for (int place = SEND_QUEUE_ID; place < SEND_BODY; place++) {
        if (place == SEND_QUEUE_KEY || place == SEND_BORN_HOST)
            continue;
        int64_t number = numbers[place] = PyLong_AsLongLong(PyTuple_GET_ITEM(row, place));
        if (number == -1 && PyErr_Occurred())
            return -1;
        if (place != SEND_BORN_TIMESTAMP && (number < INT32_MIN || number > INT32_MAX)) {
            PyErr_SetString(PyExc_OverflowError, "a number that is no int32");
            return -1;
        }
    }
    return 0;
}

/* Return the next offset of the row's queue and advance it by one; -1 with an exception set. */
static int64_t take_queue_offset(PyObject *key, PyObject *table, PyObject *next_offsets)
{
    PyObject *known = PyDict_GetItemWithError(next_offsets, key);
    if (!known && !PyErr_Occurred())
        known = PyDict_GetItemWithError(table, key);
    int64_t offset = known ? PyLong_AsLongLong(known) : 0;
    if (PyErr_Occurred())
        return -1;
    if (offset < 0 || offset == INT64_MAX) {
        PyErr_SetString(PyExc_ValueError, "a queue offset that can't be");
        return -1;
    }
    PyObject *next = PyLong_FromLongLong(offset + 1);
    int failed = !next || PyDict_SetItem(next_offsets, key, next) < 0;
    Py_XDECREF(next);
    return failed ? -1 : offset;
}

/* Write one record to `out`, where `room` bytes are left. Return its size, or -1 with an exception set. */
static int64_t put_record(uint8_t *out, int64_t room, PyObject *row, const int64_t *numbers, int64_t queue_offset,
                          int64_t offset, int64_t now, PyObject *store_host, int64_t prepared_offset)
{
    if (!is_host(PyTuple_GET_ITEM(row, SEND_BORN_HOST)) || !PyBytes_Check(PyTuple_GET_ITEM(row, SEND_TAIL))) {
        PyErr_SetString(PyExc_TypeError, "born host: 8 or 20 bytes; tail: bytes");
        return -1;
    }
    int born_v6 = (numbers[SEND_SYS_FLAG] & BORNHOST_V6_FLAG) != 0;
    int store_v6 = (numbers[SEND_SYS_FLAG] & STOREHOSTADDRESS_V6_FLAG) != 0;
    PyObject *tail = PyTuple_GET_ITEM(row, SEND_TAIL);
    Py_buffer body;
    if (PyObject_GetBuffer(PyTuple_GET_ITEM(row, SEND_BODY), &body, PyBUF_SIMPLE) < 0)
        return -1;
    int64_t head_length = HEAD_LENGTH + (born_v6 + store_v6) * MORE_IN_V6;
    int64_t size = head_length + body.len + PyBytes_GET_SIZE(tail);
    if (size != numbers[SEND_SIZE] || size > room) {
        PyErr_Format(PyExc_ValueError, "a record of %lld bytes, told as %lld, in %lld", size, numbers[SEND_SIZE], room);
        size = -1;
    } else {
        put32(out, (uint32_t)size);
        put32(out + MESSAGE_MAGIC_CODE_POSITION, MESSAGE_MAGIC_CODE);
        put32(out + BODY_CRC_POSITION, (uint32_t)numbers[SEND_CRC]);
        put32(out + QUEUE_ID_POSITION, (uint32_t)numbers[SEND_QUEUE_ID]);
        put32(out + MESSAGE_FLAG_POSITION, (uint32_t)numbers[SEND_FLAG]);
        put64(out + QUEUE_OFFSET_POSITION, queue_offset);
        put64(out + PHYSICAL_OFFSET_POSITION, offset);
        put32(out + SYSFLAG_POSITION, (uint32_t)numbers[SEND_SYS_FLAG]);
        put64(out + BORN_TIMESTAMP_POSITION, numbers[SEND_BORN_TIMESTAMP]);
        put_host(out + BORN_HOST_POSITION, PyTuple_GET_ITEM(row, SEND_BORN_HOST), born_v6);
        out += born_v6 * MORE_IN_V6;
        put64(out + STORE_TIMESTAMP_POSITION, now);
        put_host(out + STORE_HOST_POSITION, store_host, store_v6);
        out += store_v6 * MORE_IN_V6;
        put32(out + RECONSUME_TIMES_POSITION, (uint32_t)numbers[SEND_RECONSUME_TIMES]);
        put64(out + PREPARED_TRANSACTION_OFFSET_POSITION, prepared_offset);
        put32(out + BODY_LENGTH_POSITION, (uint32_t)body.len);
        memcpy(out + HEAD_LENGTH, body.buf, (size_t)body.len);
        memcpy(out + HEAD_LENGTH + body.len, PyBytes_AS_STRING(tail), (size_t)PyBytes_GET_SIZE(tail));
    }
    PyBuffer_Release(&body);
    return size;
}

static int append_number(PyObject *list, int64_t value)
{
    PyObject *number = PyLong_FromLongLong(value);
    int failed = !number || PyList_Append(list, number) < 0;
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

/* Consecutive rows of one topic: their number, and the bytes of their records. */
typedef struct { PyObject *topic; int64_t times, size; } run;

/* Add a run to the (times, bytes) of its topic. */
static int count_run(PyObject *totals, const run *r)
{
    if (!r->topic)
        return 0;
    PyObject *before = PyDict_GetItemWithError(totals, r->topic);
    long long times = 0, size = 0;
    if ((!before && PyErr_Occurred()) || (before && !PyArg_ParseTuple(before, "LL", &times, &size)))
        return -1;
    PyObject *after = Py_BuildValue("LL", times + r->times, size + r->size);
    int failed = !after || PyDict_SetItem(totals, r->topic, after) < 0;
    Py_XDECREF(after);
    return failed ? -1 : 0;
}

/* Add a row to the run, or begin a new run. */
static int count_row(PyObject *totals, run *r, PyObject *topic, int64_t size)
{
    if (topic != r->topic && !(r->topic && PyUnicode_Check(topic) && PyUnicode_Check(r->topic)
                               && PyUnicode_Compare(topic, r->topic) == 0)) {
        if (count_run(totals, r) < 0)
            return -1;
        *r = (run){topic, 0, 0};
    }
    r->times++;
    r->size += size;
    return 0;
}

/* Return whether the properties at the end of `tail` contain a NUL. */
static int has_nul(PyObject *tail)
{
    const uint8_t *bytes = (const uint8_t *)PyBytes_AS_STRING(tail);
    Py_ssize_t length = PyBytes_GET_SIZE(tail), begin = length ? bytes[0] + LENGTHS_SIZE : 0;
    return begin < length && memchr(bytes + begin, 0, (size_t)(length - begin)) != NULL;
}

/* Append `index` to the list, which is created for the first one. */
static int note_index(PyObject **list, Py_ssize_t index)
{
    if (!*list && !(*list = PyList_New(0)))
        return -1;
    return append_number(*list, index);
}

static PyObject *records_of_rows(PyObject *module, PyObject *args)
{
    PyObject *rows, *table, *store_host;
    long long total, offset, now, prepared_offset = 0;
    if (!PyArg_ParseTuple(args, "O!LO!LLS|L:records_of_rows", &PyList_Type, &rows, &total, &PyDict_Type, &table,
                          &offset, &now, &store_host, &prepared_offset))
        return NULL;
    if (total < 0 || total > INT32_MAX || !is_host(store_host)) {
        PyErr_SetString(PyExc_ValueError, "no total of an int32, or a store host that has not 8 or 20 bytes");
        return NULL;
    }
    if (offset < 0 || offset > INT64_MAX - total) {
        PyErr_SetString(PyExc_ValueError, "a commit log offset that can't be");
        return NULL;
    }
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    PyObject *queue_offsets = PyList_New(0), *physical_offsets = PyList_New(0), *next_offsets = PyDict_New();
    PyObject *totals = PyDict_New(), *with_nuls = NULL, *result = NULL;
    run same_topic = {NULL, 0, 0};
    if (!data || !queue_offsets || !physical_offsets || !next_offsets || !totals)
        goto end;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(data);
    int64_t used = 0;
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(rows); index++) {
        PyObject *row = PyList_GET_ITEM(rows, index);
        if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != SEND_FIELDS) {
            PyErr_SetString(PyExc_TypeError, "a MessageRow is wanted");
            goto end;
        }
        int64_t numbers[SEND_FIELDS] = {0}, queue_offset = 0;
        if (read_numbers(row, numbers) < 0)
            goto end;
        if (!(numbers[SEND_SYS_FLAG] & TRANSACTION_PREPARED_TYPE)) {
            queue_offset = take_queue_offset(PyTuple_GET_ITEM(row, SEND_QUEUE_KEY), table, next_offsets);
            if (queue_offset < 0)
                goto end;
        }
        int64_t size = put_record(out + used, total - used, row, numbers, queue_offset, offset + used, now, store_host,
                                  prepared_offset);
        if (size < 0 || append_number(queue_offsets, queue_offset) < 0
            || append_number(physical_offsets, offset + used) < 0
            || count_row(totals, &same_topic, PyTuple_GET_ITEM(row, SEND_TOPIC), size) < 0
            || (has_nul(PyTuple_GET_ITEM(row, SEND_TAIL)) && note_index(&with_nuls, index) < 0))
            goto end;
        used += size;
    }
    if (used != total) {
        PyErr_Format(PyExc_ValueError, "records of %lld bytes, told as %lld", (long long)used, total);
        goto end;
    }
    if (count_run(totals, &same_topic) == 0)
        result = PyTuple_Pack(6, queue_offsets, physical_offsets, data, next_offsets, totals,
                              with_nuls ? with_nuls : Py_None);
end:
    Py_XDECREF(with_nuls);
    Py_XDECREF(data);
    Py_XDECREF(queue_offsets);
    Py_XDECREF(physical_offsets);
    Py_XDECREF(next_offsets);
    Py_XDECREF(totals);
    return result;
}

static PyMethodDef methods[] = {
    {"records_of_rows", records_of_rows, METH_VARARGS, "See rmqha.store.append."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "_message_rows", "The records of messages, compiled.", -1, methods, NULL,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__message_rows(void)
{
    return module_of_this_version(&module_def);
}
