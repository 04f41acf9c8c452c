/* Simple sends and the answers to them, compiled. The twins and the documentation are in
 * rmqha/broker/processor/send_codec.py.
 *
 * The bytes come from the network. Each is compared with what is expected in its place, and none after the frame is
 * accessed. Reading stops before the first frame that differs from what is expected.
 */
#include "native.h"
#include "crc32.h"

#define MAX_STORED 12 /* properties of a record, including CLUSTER: the most before a HashMap resizes its first table */
#define MAX_DIGITS 9
#define MAX_NUMBER 20 /* characters of an int64 */
#define MARKS 4       /* the values in an answer: message id, queue id, queue offset, opaque */
#define LENGTH_FIELD 4
#define OTHER_SYS_FLAGS (TRANSACTION_ROLLBACK_TYPE | BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG)
#define BORN_DIGITS 13

typedef struct { const uint8_t *at, *end; } cursor;
typedef struct { const uint8_t *start; Py_ssize_t length; } span;

/* -- parts of the header: each function returns true if the part is at the cursor, and moves the cursor past it -- */

static int literal_of(cursor *c, const char *text, size_t length)
{
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, text, length))
        return 0;
    c->at += length;
    return 1;
}
#define literal(c, text) literal_of(c, text, sizeof(text) - 1)

static int digits(cursor *c, int most, int64_t *value)
{
    int64_t number = 0;
    int count = 0;
    for (; count < most && c->at < c->end && *c->at >= '0' && *c->at <= '9'; count++)
        number = number * 10 + (*c->at++ - '0');
    *value = number;
    return count > 0;
}

static int text(cursor *c, span *found, int escapes)
{
    found->start = c->at;
    while (c->at < c->end && *c->at != '"') {
        if (*c->at < 0x20 || *c->at > 0x7F || (*c->at == '\\' && !escapes))
            return 0;
        c->at++;
    }
    found->length = c->at - found->start;
    return c->at < c->end;
}

typedef struct { int64_t queue_id, sys_flag, born, flag, reconsumed, opaque; span topic, properties; } simple_header;

static int read_json(cursor *c, simple_header *h)
{
    span ignored;
    int64_t number;
    const uint8_t *born;
    if (!literal(c, "{\"code\":310,\"extFields\":{\"a\":\"") || !text(c, &ignored, 0) || !ignored.length
            || !literal(c, "\",\"b\":\"") || !text(c, &h->topic, 0) || !h->topic.length
            || !literal(c, "\",\"c\":\"") || !text(c, &ignored, 0) || !ignored.length
            || !literal(c, "\",\"d\":\"") || !digits(c, MAX_DIGITS, &number)
            || !literal(c, "\",\"e\":\"") || !digits(c, MAX_DIGITS, &h->queue_id)
            || !literal(c, "\",\"f\":\"") || !digits(c, MAX_DIGITS, &h->sys_flag)
            || !literal(c, "\",\"g\":\""))
        return 0;
    born = c->at;
    if (!digits(c, BORN_DIGITS, &h->born) || c->at - born != BORN_DIGITS
            || !literal(c, "\",\"h\":\"") || !digits(c, MAX_DIGITS, &h->flag)
            || !literal(c, "\",\"i\":\"") || !text(c, &h->properties, 1)
            || !literal(c, "\",\"j\":\"") || !digits(c, MAX_DIGITS, &h->reconsumed)
            || !literal(c, "\",\"k\":\"") || !(literal(c, "true") || literal(c, "false")) || !literal(c, "\","))
        return 0;
    if (literal(c, "\"l\":\"") && (!digits(c, MAX_DIGITS, &number) || !literal(c, "\",")))
        return 0;
    if (!literal(c, "\"m\":\"false\"") || (literal(c, ",\"n\":\"") && (!text(c, &ignored, 0) || !literal(c, "\""))))
        return 0;
    if (!literal(c, "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":"))
        return 0;
    if (!digits(c, MAX_DIGITS, &h->opaque))
        return 0;
    return literal(c, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":") && digits(c, MAX_DIGITS, &number)
        && literal(c, "}") && c->at == c->end;
}

/* -- the ROCKETMQ header: code, language, version, opaque, flag, remark, fields; each text after its length -- */

static int64_t big_endian(const uint8_t *at, int size)
{
    int64_t value = at[0] & 0x80 ? -1 : 0;
    for (int index = 0; index < size; index++)
        value = (int64_t)((uint64_t)value << 8 | at[index]);
    return value;
}

static int number_in(const span *field, int digits_wanted, int64_t *value)
{
    cursor c = {field->start, field->start + field->length};
    return field->start && digits(&c, digits_wanted, value) && c.at == c.end;
}

static int text_in(const span *field, int separators)
{
    if (!field->start)
        return 0;
    for (Py_ssize_t at = 0; at < field->length; at++) {
        uint8_t byte = field->start[at];
        if (byte > 0x7F || (byte < 0x20 && !(separators && (byte == 1 || byte == 2))))
            return 0;
    }
    return separators || field->length;
}

static int word_in(const span *field, const char *word)
{
    return field->start && (size_t)field->length == strlen(word) && !memcmp(field->start, word, strlen(word));
}

static int read_fields(cursor *c, span fields[14])
{
    while (c->at < c->end) {
        if (c->end - c->at < FIELD_VALUE_POSITION || c->at[0] || c->at[1] != FIELD_LENGTH_POSITION - FIELD_NAME_POSITION
                || c->at[FIELD_NAME_POSITION] < 'a' || c->at[FIELD_NAME_POSITION] > 'n')
            return 0;
        span *field = &fields[c->at[FIELD_NAME_POSITION] - 'a'];
        int64_t length = big_endian(c->at + FIELD_LENGTH_POSITION, 4);
        c->at += FIELD_VALUE_POSITION;
        if (field->start || length < 0 || length > c->end - c->at)
            return 0;
        *field = (span){c->at, (Py_ssize_t)length};
        c->at += length;
    }
    return 1;
}

static int read_binary(cursor *c, simple_header *h)
{
    const uint8_t *data = c->at;
    span fields[14] = {{NULL, 0}};
    int64_t number;
    if (c->end - data < HEADER_FIXED_LENGTH || big_endian(data + HEADER_CODE_POSITION, 2) != SEND_MESSAGE_V2
            || big_endian(data + HEADER_FLAG_POSITION, 4) || big_endian(data + HEADER_REMARK_POSITION, 4)
            || big_endian(data + HEADER_FIELDS_POSITION, 4) != c->end - data - HEADER_FIXED_LENGTH)
        return 0;
    h->opaque = big_endian(data + HEADER_OPAQUE_POSITION, 4);
    c->at += HEADER_FIXED_LENGTH;
#define FIELD(letter) (&fields[letter - 'a'])
    if (!read_fields(c, fields) || !text_in(FIELD('a'), 0) || !text_in(FIELD('b'), 0) || !text_in(FIELD('c'), 0)
            || !number_in(FIELD('d'), MAX_DIGITS, &number) || !number_in(FIELD('e'), MAX_DIGITS, &h->queue_id)
            || !number_in(FIELD('f'), MAX_DIGITS, &h->sys_flag) || FIELD('g')->length != BORN_DIGITS
            || !number_in(FIELD('g'), BORN_DIGITS, &h->born) || !number_in(FIELD('h'), MAX_DIGITS, &h->flag)
            || !text_in(FIELD('i'), 1) || !number_in(FIELD('j'), MAX_DIGITS, &h->reconsumed)
            || !(word_in(FIELD('k'), "true") || word_in(FIELD('k'), "false"))
            || (FIELD('l')->start && !number_in(FIELD('l'), MAX_DIGITS, &number)) || !word_in(FIELD('m'), "false"))
        return 0;
    h->topic = *FIELD('b');
    h->properties = *FIELD('i');
    return 1;
#undef FIELD
}

/* -- properties -- */

static Py_ssize_t unescape(const span *escaped, uint8_t *out)
{
    Py_ssize_t length = 0;
    for (Py_ssize_t at = 0; at < escaped->length; at++) {
        uint8_t byte = escaped->start[at];
        if (byte == '\\') {
            if (escaped->length - at < 6 || memcmp(escaped->start + at, "\\u000", 5)
                    || (escaped->start[at + 5] != '1' && escaped->start[at + 5] != '2'))
                return -1;
            byte = (uint8_t)(escaped->start[at + 5] - '0');
            at += 5;
        }
        out[length++] = byte;
    }
    return length;
}

typedef struct { span entry; Py_ssize_t name_length; int bucket; } property;

static int is_name(const property *p, const char *name)
{
    return (size_t)p->name_length == strlen(name) && !memcmp(p->entry.start, name, strlen(name));
}

/* Split an entry `name 1 value`. Return false if there is no separator, another one, or if either part is empty. */
static int split(property *p)
{
    const uint8_t *separator = memchr(p->entry.start, 1, (size_t)p->entry.length);
    if (!separator)
        return 0;
    p->name_length = separator - p->entry.start;
    Py_ssize_t value_length = p->entry.length - p->name_length - 1;
    uint32_t hash = 0; /* String.hashCode, from which HashMap's bucket follows */
    for (Py_ssize_t at = 0; at < p->name_length; at++)
        hash = hash * 31 + p->entry.start[at];
    p->bucket = (int)((hash ^ hash >> 16) & 15);
    return p->name_length && value_length && !memchr(separator + 1, 1, (size_t)value_length);
}

/* Return whether a property requires more than appending the message, or is the one that the broker sets. */
static int is_special(const property *p)
{
    return is_name(p, "DELAY") || is_name(p, "TRAN_MSG") || is_name(p, "INNER_MULTI_DISPATCH") || is_name(p, "CLUSTER");
}

static int is_known(const property *p, const property *others, int count)
{
    for (int other = 0; other < count; other++)
        if (others[other].name_length == p->name_length
                && !memcmp(others[other].entry.start, p->entry.start, (size_t)p->name_length))
            return 1;
    return 0;
}

/* Read the entries of `data`. Return their number, or -1 if they are unusual. */
static int read_properties(const uint8_t *data, Py_ssize_t length, property *found)
{
    const uint8_t *at = data, *end, *stop;
    int count = 0;
    if (!length)
        return 0;
    if (data[length - 1] == 2 && --length == 0)
        return -1;
    for (end = data + length;; at = stop + 1) {
        stop = at < end ? memchr(at, 2, (size_t)(end - at)) : NULL;
        if (count == MAX_STORED - 1)
            return -1;
        property *p = &found[count];
        p->entry = (span){at, (stop ? stop : end) - at};
        if (!p->entry.length || !split(p) || is_special(p) || is_known(p, found, count))
            return -1;
        count++;
        if (!stop)
            return count;
    }
}

/* Return the record's end: the topic, and the properties in Java's order, including CLUSTER. NULL without an exception
 * if they are unusual. */
static PyObject *stored_tail(const span *topic, const uint8_t *data, Py_ssize_t length, const span *cluster)
{
    property stored[MAX_STORED];
    int kept = 0, count = read_properties(data, length, stored);
    if (count < 0)
        return NULL;
    Py_ssize_t size = -1;
    for (int index = 0; index < count; index++) {
        property *p = &stored[index];
        if (!is_name(p, "WAIT"))
            stored[kept++] = *p;
        else if (p->entry.length != 9 || memcmp(p->entry.start + 5, "true", 4))
            return NULL;
    }
    stored[kept].entry = *cluster;
    if (!split(&stored[kept++]))
        return NULL;
    for (int index = 0; index < kept; index++)
        size += stored[index].entry.length + 1;
    if (topic->length > MAX_TOPIC_LENGTH || size > MAX_PROPERTIES_LENGTH)
        return NULL;
    PyObject *result = PyBytes_FromStringAndSize(NULL, 1 + topic->length + 2 + size);
    if (!result)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(result);
    *out++ = (uint8_t)topic->length;
    memcpy(out, topic->start, (size_t)topic->length);
    out += topic->length;
    *out++ = (uint8_t)(size >> 8);
    *out++ = (uint8_t)size;
    const uint8_t *first = out;
    for (int bucket = 0; bucket < 16; bucket++)
        for (int index = 0; index < kept; index++) {
            if (stored[index].bucket != bucket)
                continue;
            if (out > first)
                *out++ = 2;
            memcpy(out, stored[index].entry.start, (size_t)stored[index].entry.length);
            out += stored[index].entry.length;
        }
    return result;
}

/* -- whole sends -- */

/* Read the header of a frame without its length field, and where the body begins. Return 0 if it is no simple send. */
static int read_header(const uint8_t *data, Py_ssize_t length, simple_header *h, Py_ssize_t *body)
{
    if (length < 4 || data[0] > 1)
        return 0;
    *body = 4 + ((Py_ssize_t)data[1] << 16 | data[2] << 8 | data[3]);
    cursor c = {data + 4, data + *body};
    return *body <= length && (data[0] ? read_binary(&c, h) : read_json(&c, h));
}

/* Return the record's end for a header; NULL without an exception if its properties are unusual. */
static PyObject *tail_of(int kind, const simple_header *h, const span *cluster)
{
    uint8_t fixed[1024], *unescaped = fixed;
    PyObject *tail = NULL;
    if (kind)
        return stored_tail(&h->topic, h->properties.start, h->properties.length, cluster);
    if (h->properties.length > (Py_ssize_t)sizeof fixed && !(unescaped = PyMem_Malloc((size_t)h->properties.length)))
        return PyErr_NoMemory();
    Py_ssize_t length = unescape(&h->properties, unescaped);
    if (length >= 0)
        tail = stored_tail(&h->topic, unescaped, length, cluster);
    if (unescaped != fixed)
        PyMem_Free(unescaped);
    return tail;
}

/* The common arguments of all sends of one call, and the results. */
typedef struct {
    PyObject *data, *born_host, *routes; /* borrowed */
    const uint8_t *bytes; /* the bytes of data */
    PyTypeObject *type;
    span cluster;
    Py_ssize_t max_body;
    PyObject *sends, *opaques, *topics, *unknown;
    PyObject *topic, *keys; /* borrowed; those of the last send */
    int kind;
} reading;

/* Set an item of the tuple, which steals the reference. Return 0 if the value is NULL. */
static int set_field(PyObject *send, int place, PyObject *value)
{
    if (value)
        PyTuple_SET_ITEM(send, place, value);
    return value != NULL;
}

/* Return a MessageRow; NULL with an exception set. */
static PyObject *make_send(const reading *r, const simple_header *h, PyObject *tail, Py_ssize_t body, Py_ssize_t end)
{
    PyObject *send = r->type->tp_alloc(r->type, SEND_FIELDS);
    if (!send)
        return NULL;
    uint32_t crc = end > body ? crc32_of(r->bytes + body, end - body) & CRC_MASK : 0;
    if (set_field(send, SEND_TOPIC, Py_NewRef(r->topic))
            && set_field(send, SEND_QUEUE_ID, PyLong_FromLongLong(h->queue_id))
            && set_field(send, SEND_QUEUE_KEY, Py_NewRef(PyTuple_GET_ITEM(r->keys, h->queue_id)))
            && set_field(send, SEND_SIZE, PyLong_FromSsize_t(HEAD_LENGTH + (end - body) + PyBytes_GET_SIZE(tail)))
            && set_field(send, SEND_CRC, PyLong_FromUnsignedLong(crc))
            && set_field(send, SEND_FLAG, PyLong_FromLongLong(h->flag))
            && set_field(send, SEND_SYS_FLAG, PyLong_FromLongLong(h->sys_flag))
            && set_field(send, SEND_BORN_TIMESTAMP, PyLong_FromLongLong(h->born))
            && set_field(send, SEND_BORN_HOST, Py_NewRef(r->born_host))
            && set_field(send, SEND_RECONSUME_TIMES, PyLong_FromLongLong(h->reconsumed))
            && set_field(send, SEND_BODY, PySequence_GetSlice(r->data, body, end))
            && set_field(send, SEND_TAIL, Py_NewRef(tail)))
        return send;
    Py_DECREF(send);
    return NULL;
}

/* Set `topic` and `keys` to those of a header. Return 0 if the topic has no route, -1 with an exception set. */
static int find_route(reading *r, const span *name)
{
    if (r->topic && PyUnicode_GET_LENGTH(r->topic) == name->length
            && !memcmp(PyUnicode_1BYTE_DATA(r->topic), name->start, (size_t)name->length))
        return 1;
    PyObject *topic = PyUnicode_FromStringAndSize((const char *)name->start, name->length);
    PyObject *keys = topic ? PyDict_GetItemWithError(r->routes, topic) : NULL;
    if (!keys && topic && !PyErr_Occurred()) {
        r->unknown = topic;
        return 0;
    }
    if (keys && !PyTuple_Check(keys))
        PyErr_SetString(PyExc_TypeError, "a route is a tuple of queue keys");
    else if (keys && PyList_Append(r->topics, topic) == 0)
        r->topic = topic; /* the list holds it */
    r->keys = keys;
    Py_XDECREF(topic);
    return PyErr_Occurred() ? -1 : 1;
}

/* Add the send in the frame from `at` to `end`. Return 0 if it must take the general way, -1 with an exception set. */
static int read_send(reading *r, Py_ssize_t at, Py_ssize_t end)
{
    const uint8_t *data = r->bytes + at;
    simple_header h;
    Py_ssize_t body;
    int kept = -1;
    if (!read_header(data, end - at, &h, &body) || (PyList_GET_SIZE(r->sends) && data[0] != r->kind))
        return 0;
    PyObject *tail = tail_of(data[0], &h, &r->cluster);
    if (!tail)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *send = NULL, *opaque = NULL;
    int found = find_route(r, &h.topic);
    if (found <= 0) {
        kept = found;
    } else if (h.queue_id >= PyTuple_GET_SIZE(r->keys) || h.sys_flag & OTHER_SYS_FLAGS
               || end - at - body > r->max_body) {
        kept = 0;
    } else if ((opaque = PyLong_FromLongLong(h.opaque))) {
        send = make_send(r, &h, tail, at + body, end);
        if (send && PyList_Append(r->sends, send) == 0 && PyList_Append(r->opaques, opaque) == 0)
            kept = 1;
        r->kind = data[0];
    }
    Py_DECREF(tail);
    Py_XDECREF(send);
    Py_XDECREF(opaque);
    return kept;
}

static PyObject *read_simple_sends(PyObject *module, PyObject *args)
{
    Py_ssize_t at, most;
    PyObject *cluster, *result = NULL;
    Py_buffer view;
    reading r = {0};
    if (!PyArg_ParseTuple(args, "OnSSO!nnO!:read_simple_sends", &r.data, &at, &cluster, &r.born_host, &PyDict_Type,
                          &r.routes, &r.max_body, &most, &PyType_Type, &r.type))
        return NULL;
    if (at < 0 || !PyType_IsSubtype(r.type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_ValueError, "a position from 0 on, and a type of tuples");
        return NULL;
    }
    if (PyObject_GetBuffer(r.data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    r.bytes = view.buf;
    r.cluster = (span){(const uint8_t *)PyBytes_AS_STRING(cluster), PyBytes_GET_SIZE(cluster)};
    r.sends = PyList_New(0);
    r.opaques = PyList_New(0);
    r.topics = PyList_New(0);
    int kept = r.sends && r.opaques && r.topics ? 1 : -1;
    while (kept > 0 && PyList_GET_SIZE(r.sends) < most && view.len - at >= LENGTH_FIELD) {
        int64_t length = big_endian(r.bytes + at, LENGTH_FIELD);
        if (length > view.len - at - LENGTH_FIELD)
            break;
        kept = length < 0 ? 0 : read_send(&r, at + LENGTH_FIELD, at + LENGTH_FIELD + (Py_ssize_t)length);
        if (kept > 0)
            at += LENGTH_FIELD + (Py_ssize_t)length;
    }
    if (kept >= 0)
        result = Py_BuildValue("OOOinO", r.sends, r.opaques, r.topics, r.kind, at, r.unknown ? r.unknown : Py_None);
    Py_XDECREF(r.sends);
    Py_XDECREF(r.opaques);
    Py_XDECREF(r.topics);
    Py_XDECREF(r.unknown);
    PyBuffer_Release(&view);
    return result;
}

/* -- answers -- */

static char *number_text(char *out, int64_t value)
{
    char reversed[MAX_NUMBER], *at = reversed;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    if (value < 0)
        *out++ = '-';
    do
        *at++ = (char)('0' + rest % 10);
    while (rest /= 10);
    while (at > reversed)
        *out++ = *--at;
    return out;
}

static char *put_text(char *out, PyObject *bytes)
{
    memcpy(out, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    return out + PyBytes_GET_SIZE(bytes);
}

static char *put_length(char *out, Py_ssize_t length)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        *out++ = (char)(length >> shift);
    return out;
}

/* Write one answer to `out`: a frame's lengths, and the parts with a value between each two of them. */
static char *put_answer(char *out, PyObject *parts, const long *order, PyObject *host, const int64_t *values)
{
    char *header = out + 8, *end = header;
    for (int index = 0; index < MARKS; index++) {
        end = put_text(end, PyTuple_GET_ITEM(parts, index));
        if (order[index]) {
            end = number_text(end, values[order[index]]);
        } else {
            end = put_text(end, host);
            for (int shift = 60; shift >= 0; shift -= 4)
                *end++ = "0123456789ABCDEF"[(uint64_t)values[0] >> shift & 15];
        }
    }
    end = put_text(end, PyTuple_GET_ITEM(parts, MARKS));
    put_length(put_length(out, 4 + (end - header)), end - header);
    return end;
}

static PyObject *json_answers(PyObject *module, PyObject *args)
{
    PyObject *parts, *host, *lists[MARKS]; /* commit log offsets, sends, queue offsets, opaques */
    long order[MARKS];
    if (!PyArg_ParseTuple(args, "O!(llll)SO!O!O!O!:json_answers", &PyTuple_Type, &parts, &order[0], &order[1],
                          &order[2], &order[3], &host, &PyList_Type, &lists[0], &PyList_Type, &lists[1],
                          &PyList_Type, &lists[2], &PyList_Type, &lists[3]))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(lists[0]), most = 8 + PyBytes_GET_SIZE(host) + 16 + (MARKS - 1) * MAX_NUMBER;
    int good = PyTuple_GET_SIZE(parts) == MARKS + 1;
    for (int index = 0; good && index <= MARKS; index++) {
        good = PyBytes_Check(PyTuple_GET_ITEM(parts, index));
        most += good ? PyBytes_GET_SIZE(PyTuple_GET_ITEM(parts, index)) : 0;
    }
    for (int index = 0; index < MARKS; index++)
        good = good && 0 <= order[index] && order[index] < MARKS && PyList_GET_SIZE(lists[index]) == count;
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "five parts as bytes, four places, and lists of one length");
        return NULL;
    }
    PyObject *result = PyBytes_FromStringAndSize(NULL, count * most);
    if (!result)
        return NULL;
    char *out = PyBytes_AS_STRING(result);
    for (Py_ssize_t index = 0; index < count; index++) {
        int64_t values[MARKS];
        for (int list = 0; list < MARKS; list++) {
            PyObject *item = PyList_GET_ITEM(lists[list], index);
            if (list == 1 && PyTuple_Check(item) && PyTuple_GET_SIZE(item) > SEND_QUEUE_ID)
                item = PyTuple_GET_ITEM(item, SEND_QUEUE_ID);
            values[list] = PyLong_AsLongLong(item);
            if (values[list] == -1 && PyErr_Occurred()) {
                Py_DECREF(result);
                return NULL;
            }
        }
        out = put_answer(out, parts, order, host, values);
    }
    _PyBytes_Resize(&result, out - PyBytes_AS_STRING(result));
    return result;
}

static PyMethodDef methods[] = {
    {"json_answers", json_answers, METH_VARARGS, "See send_codec."},
    {"read_simple_sends", read_simple_sends, METH_VARARGS, "See send_codec."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "_express_send", "Simple sends, compiled.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__express_send(void)
{
    make_crc_tables();
    return module_of_this_version(&module_def);
}
