/* Counts what the threads of a program do that runs under qemu-user: how cache lines move between
 * them, their instructions and their system calls.
 *
 * The model: each thread has a cache of its own, without limit of size, and the caches are kept
 * coherent line by line (64 bytes), as by MESI.  A line moves when a thread reads what another one has
 * written since, or writes what others have seen.  So the counts do not depend on the number of
 * processors, on their speed, or on what else runs.
 *
 * Limits: accesses of the kernel are not seen.  Nothing is ever evicted, so the counts are those of
 * sharing alone.  Threads are preempted by the kernel as they are without qemu.
 *
 * Arguments: switch=FILE (its first byte is 1 while accesses are counted), out=FILE.  The result is
 * written when the program ends, all addresses in hexadecimal:
 *   map START END OFFSET FILE      a mapped file
 *   instructions COUNT             executed
 *   call NUMBER COUNT              system calls, by their numbers
 *   ADDRESS READS WRITES           an instruction that moved lines, and how often
 *
 * The declarations are those of version 1 of the plugin interface (QEMU 4.2 to 8.2).
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { WITHOUT_REGISTERS = 0 };
enum { READS_AND_WRITES = 3 };
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
    void (*)(unsigned, qemu_plugin_meminfo_t, uint64_t, void *), int, int, void *);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, unsigned, int64_t,
    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
_Bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum { THREADS_MAX = 128, LINE_BITS = 6, BUCKET_BITS = 22, PLACE_BITS = 21 };

struct place;

/* A line of memory, and the threads that have its current content. */
struct line {
    atomic_flag lock;
    uint64_t number; /* the address without its last bits, + 1; 0: none */
    uint64_t seen_by[THREADS_MAX / 64];
    struct place *moved_by; /* the instruction whose read moved it here, if nothing has used it since */
    struct line *next;
};

/* An instruction that reads or writes memory. */
struct place {
    uint64_t address;
    atomic_uint_fast64_t read_moves, write_moves;
};

enum { CALLS = 512 };

static atomic_uint_fast64_t instructions[THREADS_MAX], calls[CALLS];
static struct line *buckets;
static struct place *places;
static atomic_uint_fast64_t places_used;
static volatile const unsigned char *is_counting;
static const char *out;

static struct place *place_of(uint64_t address) {
    uint64_t at = (address * 0x9e3779b97f4a7c15u) >> (64 - PLACE_BITS);
    for (;; at = (at + 1) & ((1u << PLACE_BITS) - 1)) {
        /* Only translation adds places, and QEMU translates under a lock of its own. */
        if (places[at].address == address) return &places[at];
        if (places[at].address == 0) {
            if (++places_used > (1u << PLACE_BITS) / 2) {
                fprintf(stderr, "the program has too many instructions for PLACE_BITS\n");
                abort();
            }
            places[at].address = address;
            return &places[at];
        }
    }
}

static void lock(struct line *line) {
    while (atomic_flag_test_and_set_explicit(&line->lock, memory_order_acquire)) {}
}

/* The line in its bucket, whose lock the caller holds. */
static struct line *line_of(struct line *bucket, uint64_t number) {
    struct line *line = bucket;
    for (;;) {
        if (line->number == number) return line;
        if (line->number == 0) { line->number = number; return line; }
        if (!line->next) break;
        line = line->next;
    }
    line->next = calloc(1, sizeof *line);
    if (!line->next) abort();
    line->next->number = number;
    return line->next;
}

static void accessed(unsigned thread, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    struct place *place = data;
    uint64_t number = (address >> LINE_BITS) + 1;
    struct line *bucket = &buckets[(number * 0x9e3779b97f4a7c15u) >> (64 - BUCKET_BITS)];
    unsigned word = thread % THREADS_MAX / 64;
    uint64_t bit = 1ull << (thread % 64);
    int is_new = 1, is_others = 0;
    lock(bucket);
    struct line *line = line_of(bucket, number);
    for (unsigned at = 0; at < THREADS_MAX / 64; at++) {
        uint64_t others = line->seen_by[at] & ~(at == word ? bit : 0);
        is_new &= line->seen_by[at] == 0;
        is_others |= others != 0;
    }
    int is_mine = (line->seen_by[word] & bit) != 0;
    if (qemu_plugin_mem_is_store(info)) {
        /* A locked instruction reads and writes: the line moves once. */
        if (is_others && line->moved_by != place && *is_counting) place->write_moves++;
        memset(line->seen_by, 0, sizeof line->seen_by);
        line->moved_by = NULL;
    } else if (!is_mine && !is_new) {
        if (*is_counting) place->read_moves++;
        line->moved_by = place;
    } else {
        line->moved_by = NULL;
    }
    line->seen_by[word] |= bit;
    atomic_flag_clear_explicit(&bucket->lock, memory_order_release);
}

static void executed(unsigned thread, void *count) {
    if (*is_counting) instructions[thread % THREADS_MAX] += (uintptr_t)count;
}

static void called(qemu_plugin_id_t id, unsigned thread, int64_t number, uint64_t a, uint64_t b, uint64_t c,
    uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    (void)id, (void)thread, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (*is_counting && number >= 0 && number < CALLS) calls[number]++;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(block);
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, WITHOUT_REGISTERS, (void *)(uintptr_t)count);
    for (size_t at = 0; at < count; at++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, at);
        struct place *place = place_of(qemu_plugin_insn_vaddr(insn));
        qemu_plugin_register_vcpu_mem_cb(insn, accessed, WITHOUT_REGISTERS, READS_AND_WRITES, place);
    }
}

static void ended(qemu_plugin_id_t id, void *data) {
    (void)id, (void)data;
    FILE *file = fopen(out, "w"), *maps = fopen("/proc/self/maps", "r");
    char text[4096], path[4096];
    uint64_t start, end, offset;
    while (maps && file && fgets(text, sizeof text, maps))
        if (sscanf(text, "%lx-%lx %*s %lx %*s %*s %4095s", &start, &end, &offset, path) == 4 && path[0] == '/')
            fprintf(file, "map %lx %lx %lx %s\n", start, end, offset, path);
    uint64_t sum = 0;
    for (unsigned at = 0; at < THREADS_MAX; at++) sum += instructions[at];
    if (file) fprintf(file, "instructions %lu\n", sum);
    for (unsigned at = 0; file && at < CALLS; at++)
        if (calls[at]) fprintf(file, "call %u %lu\n", at, calls[at]);
    for (size_t at = 0; file && at < 1u << PLACE_BITS; at++)
        if (places[at].read_moves || places[at].write_moves)
            fprintf(file, "%lx %lu %lu\n", places[at].address, places[at].read_moves, places[at].write_moves);
    if (!file || fclose(file)) perror(out);
}

__attribute__((visibility("default")))
int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
    (void)info;
    static const unsigned char always = 1;
    is_counting = &always;
    for (int at = 0; at < argc; at++) {
        if (!strncmp(argv[at], "out=", 4)) out = strdup(argv[at] + 4);
        if (!strncmp(argv[at], "switch=", 7)) {
            int file = open(argv[at] + 7, O_RDONLY);
            is_counting = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
            if (is_counting == MAP_FAILED) { perror(argv[at]); return 1; }
        }
    }
    buckets = calloc(1u << BUCKET_BITS, sizeof *buckets);
    places = calloc(1u << PLACE_BITS, sizeof *places);
    if (!out || !buckets || !places) { fprintf(stderr, "out= is missing, or memory\n"); return 1; }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
