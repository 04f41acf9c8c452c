/* The records of plain sends, compiled: what rmqha/store/plain_records.py does in Python, and documents. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define VERSION 2
#define HEAD_LENGTH 88
#define MESSAGE_MAGIC_CODE (-626843481)
#define HOST_LENGTH 8

/* Places in a PlainSend. */
enum {
    TOPIC, QUEUE_ID, QUEUE_KEY, SIZE, CRC, FLAG, SYS_FLAG, BORN_TIMESTAMP, BORN_HOST, RECONSUME_TIMES, BODY, TAIL, FIELDS
};

static uint8_t *put_int(uint8_t *out, int64_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        *out++ = (uint8_t)((uint64_t)value >> shift);
    return out;
}

static uint8_t *put_long(uint8_t *out, int64_t value)
{
    for (int shift = 56; shift >= 0; shift -= 8)
        *out++ = (uint8_t)((uint64_t)value >> shift);
    return out;
}

static uint8_t *put_bytes(uint8_t *out, const void *bytes, Py_ssize_t length)
{
    memcpy(out, bytes, (size_t)length);
    return out + length;
}

static int is_host(PyObject *object)
{
    return PyBytes_Check(object) && PyBytes_GET_SIZE(object) == HOST_LENGTH;
}

/* The next offset of the send's queue, which then is one more; -1 with an error. */
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

/* Write one record behind `out`, of which `room` bytes are left; its size, or -1 with an error. */
static int64_t put_record(uint8_t *out, int64_t room, PyObject *send, int64_t queue_offset, int64_t offset, int64_t now,
                          PyObject *store_host)
{
    int64_t numbers[FIELDS] = {0};
    if (!is_host(PyTuple_GET_ITEM(send, BORN_HOST)) || !PyBytes_Check(PyTuple_GET_ITEM(send, TAIL))) {
        PyErr_SetString(PyExc_TypeError, "born host: 8 bytes; tail: bytes");
        return -1;
    }
    for (int place = QUEUE_ID; place < BODY; place++) {
        if (place == QUEUE_KEY || place == BORN_HOST)
            continue;
        int64_t number = numbers[place] = PyLong_AsLongLong(PyTuple_GET_ITEM(send, place));
        if (number == -1 && PyErr_Occurred())
            return -1;
        if (place != BORN_TIMESTAMP && (number < INT32_MIN || number > INT32_MAX)) {
            PyErr_SetString(PyExc_OverflowError, "a number that is no int32");
            return -1;
        }
    }
    PyObject *tail = PyTuple_GET_ITEM(send, TAIL);
    Py_buffer body;
    if (PyObject_GetBuffer(PyTuple_GET_ITEM(send, BODY), &body, PyBUF_SIMPLE) < 0)
        return -1;
    int64_t size = HEAD_LENGTH + body.len + PyBytes_GET_SIZE(tail);
    if (size != numbers[SIZE] || size > room) {
        PyErr_Format(PyExc_ValueError, "a record of %lld bytes, told as %lld, in %lld", size, numbers[SIZE], room);
        size = -1;
    } else {
        out = put_int(out, size);
        out = put_int(out, MESSAGE_MAGIC_CODE);
        out = put_int(out, numbers[CRC]);
        out = put_int(out, numbers[QUEUE_ID]);
        out = put_int(out, numbers[FLAG]);
        out = put_long(out, queue_offset);
        out = put_long(out, offset);
        out = put_int(out, numbers[SYS_FLAG]);
        out = put_long(out, numbers[BORN_TIMESTAMP]);
        out = put_bytes(out, PyBytes_AS_STRING(PyTuple_GET_ITEM(send, BORN_HOST)), HOST_LENGTH);
        out = put_long(out, now);
        out = put_bytes(out, PyBytes_AS_STRING(store_host), HOST_LENGTH);
        out = put_int(out, numbers[RECONSUME_TIMES]);
        out = put_long(out, 0);
        out = put_int(out, body.len);
        out = put_bytes(out, body.buf, body.len);
        put_bytes(out, PyBytes_AS_STRING(tail), PyBytes_GET_SIZE(tail));
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

/* Sends in a row to one topic: how many, and the bytes of their records. */
typedef struct { PyObject *topic; int64_t times, size; } run;

/* Add a run to its topic's (times, bytes). */
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

/* Add a send to the run, or begin another one. */
static int count_send(PyObject *totals, run *r, PyObject *topic, int64_t size)
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

static PyObject *plain_records(PyObject *module, PyObject *args)
{
    PyObject *sends, *table, *store_host;
    long long total, offset, now;
    if (!PyArg_ParseTuple(args, "O!LO!LLS:plain_records", &PyList_Type, &sends, &total, &PyDict_Type, &table, &offset,
                          &now, &store_host))
        return NULL;
    if (total < 0 || total > INT32_MAX || !is_host(store_host)) {
        PyErr_SetString(PyExc_ValueError, "no total of an int32, or a store host that has not 8 bytes");
        return NULL;
    }
    if (offset < 0 || offset > INT64_MAX - total) {
        PyErr_SetString(PyExc_ValueError, "a commit log offset that can't be");
        return NULL;
    }
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    PyObject *queue_offsets = PyList_New(0), *physical_offsets = PyList_New(0), *next_offsets = PyDict_New();
    PyObject *totals = PyDict_New(), *result = NULL;
    run same_topic = {NULL, 0, 0};
    if (!data || !queue_offsets || !physical_offsets || !next_offsets || !totals)
        goto end;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(data);
    int64_t used = 0;
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(sends); index++) {
        PyObject *send = PyList_GET_ITEM(sends, index);
        if (!PyTuple_Check(send) || PyTuple_GET_SIZE(send) != FIELDS) {
            PyErr_SetString(PyExc_TypeError, "a PlainSend is wanted");
            goto end;
        }
        int64_t queue_offset = take_queue_offset(PyTuple_GET_ITEM(send, QUEUE_KEY), table, next_offsets);
        if (queue_offset < 0)
            goto end;
        int64_t size = put_record(out + used, total - used, send, queue_offset, offset + used, now, store_host);
        if (size < 0 || append_number(queue_offsets, queue_offset) < 0
            || append_number(physical_offsets, offset + used) < 0
            || count_send(totals, &same_topic, PyTuple_GET_ITEM(send, TOPIC), size) < 0)
            goto end;
        used += size;
    }
    if (used != total) {
        PyErr_Format(PyExc_ValueError, "records of %lld bytes, told as %lld", (long long)used, total);
        goto end;
    }
    if (count_run(totals, &same_topic) == 0)
        result = PyTuple_Pack(5, queue_offsets, physical_offsets, data, next_offsets, totals);
end:
    Py_XDECREF(data);
    Py_XDECREF(queue_offsets);
    Py_XDECREF(physical_offsets);
    Py_XDECREF(next_offsets);
    Py_XDECREF(totals);
    return result;
}

static PyMethodDef methods[] = {
    {"plain_records", plain_records, METH_VARARGS, "See rmqha.store.plain_records."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "_plain_records", "The records of plain sends, compiled.", -1, methods, NULL,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__plain_records(void)
{
    PyObject *module = PyModule_Create(&module_def);
    if (module && PyModule_AddIntConstant(module, "VERSION", VERSION) < 0)
        Py_CLEAR(module);
    return module;
}
