/* The properties of many records as columns. It does the same as its twin in rmqha/store/bulk/bulk_python.py, where the
 * columns are documented, but without the GIL.
 *
 * Properties are: name 1 value 2 name 1 value ... Entries without a name, separator or value are ignored. If a name
 * occurs twice, it has the first place and the last value, as in a Java map that is filled in this order and keeps it.
 * Bytes that are not UTF-8 are first replaced by U+FFFD, as in Java and Python; different names may become equal by it.
 */
#include "native.h"

#define MAX_WANTED 16
#define FEW 64 /* up to this many entries of a record, each is compared with each */
#define REPLACED_LENGTH 3 /* U+FFFD in UTF-8, for at least one byte */

enum { DONE, NO_MEMORY, WRONG_PLACE, TOO_LONG };

typedef struct { const uint8_t *name, *value; int32_t name_length, value_length; } entry;
typedef struct { const uint8_t *at; int32_t length; } piece; /* `at` is NULL if there is none */

typedef struct {
    const uint8_t *data, *begins, *ends;
    int64_t size, count; /* bytes of the data; records */
    piece names[MAX_WANTED]; /* the requested ones */
    int wanted, with_map;
    entry *entries; /* of all records; unused without a map */
    int64_t used, room;
    uint8_t *mended; /* repaired copies of texts that were not UTF-8 */
    int64_t mended_length;
    int32_t *order; /* for records of many entries */
    int64_t order_room;
    piece *found; /* for each record, each requested one */
    int64_t name_bytes, value_bytes, found_bytes[MAX_WANTED];
} work;

static int64_t number_at(const uint8_t *numbers, int64_t index)
{
    int64_t number;
    memcpy(&number, numbers + index * (int64_t)sizeof number, sizeof number);
    return number;
}

/* -- text -- */

/* Return the first position from `at` on that is not ASCII, or `length`. */
static int64_t ascii_end(const uint8_t *p, int64_t at, int64_t length)
{
    for (; length - at >= 8; at += 8) {
        uint64_t eight;
        memcpy(&eight, p + at, sizeof eight);
        if (eight & 0x8080808080808080u)
            break;
    }
    while (at < length && p[at] < 0x80)
        at++;
    return at;
}

static int is_utf8(const uint8_t *p, int64_t length)
{
    uint32_t code_point;
    for (int64_t at = 0; (at = ascii_end(p, at, length)) < length;) {
        int used = utf8_sequence(p + at, length - at, &code_point);
        if (used < 0)
            return 0;
        at += used;
    }
    return 1;
}

/* Copy a text with U+FFFD for everything that is not UTF-8. Return the new length, at most three times the old. */
static int64_t mend(const uint8_t *p, int64_t length, uint8_t *out)
{
    int64_t at = 0, written = 0;
    uint32_t code_point;
    while (at < length) {
        int used = p[at] < 0x80 ? 1 : utf8_sequence(p + at, length - at, &code_point);
        if (used > 0) {
            memcpy(out + written, p + at, (size_t)used);
            written += used;
        } else {
            memcpy(out + written, "\xEF\xBF\xBD", REPLACED_LENGTH);
            written += REPLACED_LENGTH, used = -used;
        }
        at += used;
    }
    return written;
}

/* -- one record -- */

static int add_entry(work *w, entry found)
{
    if (w->used == w->room) {
        int64_t room = w->room ? w->room * 2 : 1024;
        entry *entries = PyMem_RawRealloc(w->entries, (size_t)room * sizeof *entries);
        if (!entries)
            return NO_MEMORY;
        w->entries = entries, w->room = room;
    }
    w->entries[w->used++] = found;
    return DONE;
}

static int same_name(const entry *one, const entry *other)
{
    return one->name_length == other->name_length && memcmp(one->name, other->name, (size_t)one->name_length) == 0;
}

static uint32_t tag_of(const entry *e)
{
    return (uint32_t)e->name_length << 16 ^ (uint32_t)e->name[0] << 8 ^ e->name[e->name_length - 1];
}

/* Merge entries with equal names, for up to FEW entries: keep the first, with the value of the last. Return how many
 * are left. */
static int64_t merge_few(entry *entries, int64_t count)
{
    uint32_t tags[FEW];
    int64_t kept = 0;
    for (int64_t at = 0; at < count; at++) {
        uint32_t tag = tag_of(entries + at);
        int64_t other = 0;
        while (other < kept && !(tags[other] == tag && same_name(entries + other, entries + at)))
            other++;
        if (other < kept) {
            entries[other].value = entries[at].value, entries[other].value_length = entries[at].value_length;
        } else {
            tags[kept] = tag;
            entries[kept++] = entries[at];
        }
    }
    return kept;
}

/* The order in which the numbers of entries are sorted: by name, and equal names by number. It is a heap sort, because
 * the number of comparisons is then bounded, whatever the names are, and no more memory is needed. */
static int is_before(const entry *entries, int32_t one, int32_t other)
{
    const entry *a = entries + one, *b = entries + other;
    if (a->name_length != b->name_length)
        return a->name_length < b->name_length;
    int order = memcmp(a->name, b->name, (size_t)a->name_length);
    return order ? order < 0 : one < other;
}

static void sift(const entry *entries, int32_t *order, int64_t root, int64_t count)
{
    int32_t moving = order[root];
    for (int64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && is_before(entries, order[child], order[child + 1]))
            child++;
        if (!is_before(entries, moving, order[child]))
            break;
        order[root] = order[child];
    }
    order[root] = moving;
}

static void sort_by_name(const entry *entries, int32_t *order, int64_t count)
{
    for (int64_t root = count / 2; root-- > 0;)
        sift(entries, order, root, count);
    for (int64_t last = count; --last > 0;) {
        int32_t greatest = order[0];
        order[0] = order[last], order[last] = greatest;
        sift(entries, order, 0, last);
    }
}

/* Like merge_few, for any number of entries. Return -1 if out of memory. */
static int64_t merge_many(work *w, entry *entries, int64_t count)
{
    if (count > w->order_room) {
        int32_t *order = PyMem_RawRealloc(w->order, (size_t)count * sizeof *order);
        if (!order)
            return -1;
        w->order = order, w->order_room = count;
    }
    for (int64_t at = 0; at < count; at++)
        w->order[at] = (int32_t)at;
    sort_by_name(entries, w->order, count);
    for (int64_t at = 0, next; at < count; at = next) {
        entry *first = entries + w->order[at];
        for (next = at + 1; next < count && same_name(first, entries + w->order[next]); next++) {
            entry *again = entries + w->order[next];
            first->value = again->value, first->value_length = again->value_length;
            again->value = NULL;
        }
    }
    int64_t kept = 0;
    for (int64_t at = 0; at < count; at++)
        if (entries[at].value)
            entries[kept++] = entries[at];
    return kept;
}

/* Record the value of an entry if its name is a requested one. */
static void note_wanted(const work *w, const entry *e, piece *found)
{
    for (int number = 0; number < w->wanted; number++)
        if (e->name_length == w->names[number].length
                && memcmp(e->name, w->names[number].at, (size_t)e->name_length) == 0)
            found[number] = (piece){e->value, e->value_length};
}

/* Add the entries of a text, which must be UTF-8. */
static int split_text(work *w, const uint8_t *text, int64_t length, piece *found)
{
    int64_t first = w->with_map ? w->used : 0;
    for (int64_t at = 0; at < length;) {
        const uint8_t *begin = text + at;
        const uint8_t *stop = memchr(begin, 2, (size_t)(length - at));
        int64_t size = stop ? stop - begin : length - at;
        const uint8_t *separator = memchr(begin, 1, (size_t)size);
        at += size + 1;
        if (!separator || separator == begin || separator - begin + 1 == size)
            continue;
        entry e = {begin, separator + 1, (int32_t)(separator - begin), (int32_t)(size - (separator - begin) - 1)};
        note_wanted(w, &e, found);
        if (w->with_map && add_entry(w, e) == NO_MEMORY)
            return NO_MEMORY;
    }
    if (w->with_map && w->used - first > 1) {
        int64_t count = w->used - first, kept;
        kept = count <= FEW ? merge_few(w->entries + first, count) : merge_many(w, w->entries + first, count);
        if (kept < 0)
            return NO_MEMORY;
        w->used = first + kept;
    }
    return DONE;
}

/* -- all records -- */

/* Check that each record's properties are within the data, and sum up their bytes. */
static int check_places(const work *w, int64_t *total)
{
    *total = 0;
    for (int64_t index = 0; index < w->count; index++) {
        int64_t begin = number_at(w->begins, index), end = number_at(w->ends, index);
        if (begin < 0 || begin > end || end > w->size)
            return WRONG_PLACE;
        if (end - begin > INT32_MAX / REPLACED_LENGTH)
            return TOO_LONG;
        *total += end - begin;
    }
    return DONE;
}

static int add_bytes(work *w, int64_t first, const piece *found)
{
    for (int64_t at = first; at < w->used; at++)
        w->name_bytes += w->entries[at].name_length, w->value_bytes += w->entries[at].value_length;
    int64_t most = w->name_bytes > w->value_bytes ? w->name_bytes : w->value_bytes;
    for (int number = 0; number < w->wanted; number++) {
        w->found_bytes[number] += found[number].at ? found[number].length : 0;
        if (w->found_bytes[number] > most)
            most = w->found_bytes[number];
    }
    return most > INT32_MAX || w->used > INT32_MAX ? TOO_LONG : DONE;
}

/* Find all entries. Set `bounds` to the number of the first entry of each record, and then to the number of all. */
static int find_all(work *w, int32_t *bounds)
{
    int64_t total;
    int failed = check_places(w, &total);
    for (int64_t index = 0; !failed && index < w->count; index++) {
        int64_t begin = number_at(w->begins, index), length = number_at(w->ends, index) - begin, first = w->used;
        const uint8_t *text = w->data + begin;
        piece *found = w->found + index * w->wanted;
        memset(found, 0, (size_t)w->wanted * sizeof *found);
        if (!is_utf8(text, length)) {
            if (!w->mended && !(w->mended = PyMem_RawMalloc((size_t)(total * REPLACED_LENGTH))))
                return NO_MEMORY;
            uint8_t *out = w->mended + w->mended_length;
            length = mend(text, length, out);
            w->mended_length += length, text = out;
        }
        failed = split_text(w, text, length, found);
        if (!failed)
            failed = add_bytes(w, first, found);
        if (w->with_map)
            bounds[index + 1] = (int32_t)w->used;
        total -= number_at(w->ends, index) - begin;
    }
    return failed;
}

/* Texts one after another. `offsets` are where each begins, and the end of the last. */
typedef struct { int32_t *offsets; uint8_t *bytes; int64_t length; } texts;

static inline void add_text(texts *t, int64_t index, const uint8_t *p, int32_t length)
{
    t->offsets[index] = (int32_t)t->length;
    memcpy(t->bytes + t->length, p, (size_t)length);
    t->length += length;
}

static void write_map(const work *w, texts *names, texts *values)
{
    for (int64_t at = 0; at < w->used; at++) {
        const entry *e = w->entries + at;
        add_text(names, at, e->name, e->name_length);
        add_text(values, at, e->value, e->value_length);
    }
    names->offsets[w->used] = (int32_t)names->length;
    values->offsets[w->used] = (int32_t)values->length;
}

static void write_wanted(const work *w, int number, uint8_t *valid, texts *values)
{
    memset(valid, 0, (size_t)(w->count + 7) / 8);
    for (int64_t index = 0; index < w->count; index++) {
        piece found = w->found[index * w->wanted + number];
        values->offsets[index] = (int32_t)values->length;
        if (found.at) {
            valid[index / 8] |= (uint8_t)(1 << index % 8);
            add_text(values, index, found.at, found.length);
        }
    }
    values->offsets[w->count] = (int32_t)values->length;
}

/* -- Python -- */

/* Allocate texts as two bytes objects, which are NULL if out of memory. */
static int make_texts(texts *t, int64_t count, int64_t length, PyObject **offsets, PyObject **bytes)
{
    *offsets = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((count + 1) * (int64_t)sizeof(int32_t)));
    *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (!*offsets || !*bytes)
        return -1;
    *t = (texts){(int32_t *)PyBytes_AS_STRING(*offsets), (uint8_t *)PyBytes_AS_STRING(*bytes), 0};
    return 0;
}

/* Return (bounds, offsets and bytes of the names, offsets and bytes of the values). */
static PyObject *map_of(const work *w, PyObject *bounds)
{
    PyObject *parts[4] = {NULL}, *result = NULL;
    texts names, values;
    if (make_texts(&names, w->used, w->name_bytes, &parts[0], &parts[1]) == 0
            && make_texts(&values, w->used, w->value_bytes, &parts[2], &parts[3]) == 0) {
        Py_BEGIN_ALLOW_THREADS
        write_map(w, &names, &values);
        Py_END_ALLOW_THREADS
        result = PyTuple_Pack(5, bounds, parts[0], parts[1], parts[2], parts[3]);
    }
    for (int at = 0; at < 4; at++)
        Py_XDECREF(parts[at]);
    return result;
}

/* Return (bits that show which records have the property, offsets and bytes of its values). */
static PyObject *wanted_of(const work *w, int number)
{
    PyObject *valid = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((w->count + 7) / 8));
    PyObject *offsets = NULL, *bytes = NULL, *result = NULL;
    texts values;
    if (valid && make_texts(&values, w->count, w->found_bytes[number], &offsets, &bytes) == 0) {
        Py_BEGIN_ALLOW_THREADS
        write_wanted(w, number, (uint8_t *)PyBytes_AS_STRING(valid), &values);
        Py_END_ALLOW_THREADS
        result = PyTuple_Pack(3, valid, offsets, bytes);
    }
    Py_XDECREF(valid);
    Py_XDECREF(offsets);
    Py_XDECREF(bytes);
    return result;
}

static PyObject *results_of(const work *w, PyObject *bounds)
{
    PyObject *columns = PyList_New(w->wanted), *map = NULL;
    for (int number = 0; columns && number < w->wanted; number++) {
        PyObject *column = wanted_of(w, number);
        if (!column)
            Py_CLEAR(columns);
        else
            PyList_SET_ITEM(columns, number, column);
    }
    if (columns)
        map = w->with_map ? map_of(w, bounds) : Py_NewRef(Py_None);
    PyObject *result = map ? PyTuple_Pack(2, map, columns) : NULL;
    Py_XDECREF(map);
    Py_XDECREF(columns);
    return result;
}

static int take_names(work *w, PyObject *names)
{
    if (PyTuple_GET_SIZE(names) > MAX_WANTED) {
        PyErr_Format(PyExc_ValueError, "%zd names, at most %d", PyTuple_GET_SIZE(names), MAX_WANTED);
        return -1;
    }
    for (; w->wanted < PyTuple_GET_SIZE(names); w->wanted++) {
        PyObject *name = PyTuple_GET_ITEM(names, w->wanted);
        if (!PyBytes_Check(name) || PyBytes_GET_SIZE(name) > INT32_MAX) {
            PyErr_SetString(PyExc_TypeError, "a name is wanted as bytes");
            return -1;
        }
        w->names[w->wanted] = (piece){(const uint8_t *)PyBytes_AS_STRING(name), (int32_t)PyBytes_GET_SIZE(name)};
    }
    return 0;
}

/* Find all entries and build the results. Return NULL with an exception set. */
static PyObject *work_through(work *w)
{
    int failed = NO_MEMORY;
    PyObject *result = NULL;
    PyObject *bounds = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((w->count + 1) * (int64_t)sizeof(int32_t)));
    w->found = PyMem_RawMalloc((size_t)(w->count * w->wanted) * sizeof *w->found + 1);
    if (bounds && w->found) {
        int32_t *numbers = (int32_t *)PyBytes_AS_STRING(bounds);
        numbers[0] = 0;
        Py_BEGIN_ALLOW_THREADS
        failed = find_all(w, numbers);
        Py_END_ALLOW_THREADS
    }
    if (!failed)
        result = results_of(w, bounds);
    else if (failed == WRONG_PLACE)
        PyErr_SetString(PyExc_ValueError, "properties that do not lie in the data");
    else if (failed == TOO_LONG)
        PyErr_SetString(PyExc_OverflowError, "more bytes than a column has offsets for");
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    Py_XDECREF(bounds);
    PyMem_RawFree(w->found);
    PyMem_RawFree(w->entries);
    PyMem_RawFree(w->mended);
    PyMem_RawFree(w->order);
    return result;
}

static PyObject *property_columns(PyObject *module, PyObject *args)
{
    Py_buffer data, begins, ends;
    PyObject *names, *result = NULL;
    work w = {0};
    if (!PyArg_ParseTuple(args, "y*y*y*O!p:property_columns", &data, &begins, &ends, &PyTuple_Type, &names,
                          &w.with_map))
        return NULL;
    if (begins.len != ends.len || begins.len % (Py_ssize_t)sizeof(int64_t)) {
        PyErr_Format(PyExc_ValueError, "begins of %zd bytes, ends of %zd", begins.len, ends.len);
    } else if (take_names(&w, names) == 0) {
        w.data = data.buf, w.size = data.len, w.begins = begins.buf, w.ends = ends.buf;
        w.count = begins.len / (Py_ssize_t)sizeof(int64_t);
        result = work_through(&w);
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&begins);
    PyBuffer_Release(&ends);
    return result;
}

static PyMethodDef methods[] = {
    {"property_columns", property_columns, METH_VARARGS, "See rmqha.store.bulk.bulk_python."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "_properties", "The properties of records, compiled.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__properties(void)
{
    return module_of_this_version(&module_def);
}
