/*
 * hints.c: what programs and users tell the layer about how files are used.
 *
 * Keys are those of MPI, ROMIO, Lustre's and Cray's MPI. All are remembered and given back; docs/mpiio.md says which do something.
 */
#include "layer.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known {
    const char *key;
    const char *preset;
};

/* An empty preset: not told unless somebody sets it. */
static const struct known KNOWN[] = {
    {"cb_buffer_size", "16777216"},
    {"cb_nodes", ""},
    {"cb_config_list", "*:1"},
    {"romio_cb_read", "automatic"},
    {"romio_cb_write", "automatic"},
    {"romio_no_indep_rw", "false"},
    {"romio_cb_pfr", "disable"},
    {"romio_cb_fr_types", "aar"},
    {"romio_cb_fr_alignment", "1"},
    {"romio_cb_ds_threshold", "0"},
    {"romio_cb_alltoall", "automatic"},
    {"romio_ds_read", "automatic"},
    {"romio_ds_write", "automatic"},
    {"romio_ds_in_coll", ""},
    {"romio_min_fdomain_size", "0"},
    {"romio_synchronized_flush", "disabled"},
    {"romio_visibility_immediate", "true"},
    {"romio_filesystem_type", "CCPFS"},
    {"romio_aggregator_list", ""},
    {"ind_rd_buffer_size", "4194304"},
    {"ind_wr_buffer_size", "524288"},
    {"striping_factor", ""},
    {"striping_unit", ""},
    {"start_iodevice", ""},
    {"direct_read", "false"},
    {"direct_write", "false"},
    {"file_perm", ""},
    {"access_style", ""},
    {"collective_buffering", ""},
    {"cb_block_size", ""},
    {"chunked", ""},
    {"chunked_item", ""},
    {"chunked_size", ""},
    {"filename", ""},
    {"io_node_list", ""},
    {"nb_proc", ""},
    {"num_io_nodes", ""},
    {"romio_lustre_co_ratio", "1"},
    {"romio_lustre_coll_threshold", "0"},
    {"romio_lustre_ds_in_coll", "disable"},
    {"romio_lustre_cb_lock_ahead_write", "0"},
    {"romio_lustre_cb_lock_ahead_read", "0"},
    {"romio_lustre_cb_lock_ahead_num_extents", "500"},
    {"romio_lustre_cb_lock_ahead_flags", "0"},
    {"ccpfs_lock_kind", ""},
    {"ccpfs_lock_protocol", ""},
    {"cray_cb_write_lock_mode", "0"},
    {"cray_cb_nodes_multiplier", "1"},
};

enum { KNOWN_COUNT = sizeof KNOWN / sizeof KNOWN[0] };

struct hint_strings {
    char values[KNOWN_COUNT][HINT_VALUE_MAX];
};

static int index_of(const char *key)
{
    for (int i = 0; i < KNOWN_COUNT; i++)
        if (!strcmp(KNOWN[i].key, key))
            return i;
    return -1;
}

struct hint_strings *hint_strings_new(void)
{
    struct hint_strings *strings = calloc(1, sizeof *strings);

    for (int i = 0; strings && i < KNOWN_COUNT; i++)
        snprintf(strings->values[i], HINT_VALUE_MAX, "%s", KNOWN[i].preset);
    return strings;
}

void hint_strings_free(struct hint_strings *strings)
{
    free(strings);
}

const char *hint(const struct hint_strings *strings, const char *key)
{
    int at = index_of(key);
    return at < 0 ? "" : strings->values[at];
}

void hint_set(struct hint_strings *strings, const char *key, const char *value)
{
    int at = index_of(key);
    if (at >= 0)
        snprintf(strings->values[at], HINT_VALUE_MAX, "%s", value);
}

void hint_set_number(struct hint_strings *strings, const char *key, int64_t value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    hint_set(strings, key, digits);
}

/* Keys whose values are positive numbers: others are ignored, as MPI demands of values that make no sense. */
static int is_sensible(const char *key, const char *value)
{
    static const char *const NUMBERS[] = {"cb_buffer_size", "cb_nodes", "striping_factor", "striping_unit",
                                          "ind_rd_buffer_size", "ind_wr_buffer_size", "cray_cb_nodes_multiplier"};
    static const char *const WORDS[] = {"romio_cb_read", "romio_cb_write", "romio_ds_read", "romio_ds_write"};

    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++)
        if (!strcmp(key, NUMBERS[i]))
            return strtoll(value, NULL, 10) > 0;
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++)
        if (!strcmp(key, WORDS[i]))
            return !strcmp(value, "enable") || !strcmp(value, "disable") || !strcmp(value, "automatic");
    return 1;
}

/* What the layer decides is not the program's to set. */
static int is_told_only(const char *key)
{
    return !strcmp(key, "romio_visibility_immediate") || !strcmp(key, "romio_filesystem_type") ||
           !strcmp(key, "romio_aggregator_list");
}

static void take(struct hint_strings *strings, const char *key, const char *value)
{
    if (*value && !is_told_only(key) && is_sensible(key, value))
        hint_set(strings, key, value);
}

/* A file of lines "key value": the one that ROMIO_HINTS names. */
static void take_file(struct hint_strings *strings)
{
    const char *path = getenv("ROMIO_HINTS");
    char line[512], key[256], value[256];
    FILE *hints = path && *path ? fopen(path, "r") : NULL;

    while (hints && fgets(line, sizeof line, hints))
        if (line[0] != '#' && sscanf(line, "%255s %255s", key, value) == 2)
            take(strings, key, value);
    if (hints)
        fclose(hints);
}

/* "pattern:key=value:key=value,pattern:key=value": what MPICH_MPIIO_HINTS says of this path. */
static void take_variable(struct hint_strings *strings, const char *path)
{
    const char *variable = getenv("CCPFS_MPIIO_HINTS");
    const char *slash = strrchr(path, '/');
    char *copy, *save_file = NULL, *save_pair = NULL;

    if (!variable)
        variable = getenv("MPICH_MPIIO_HINTS");
    copy = variable ? strdup(variable) : NULL;
    for (char *entry = copy ? strtok_r(copy, ",", &save_file) : NULL; entry; entry = strtok_r(NULL, ",", &save_file)) {
        char *pattern = strtok_r(entry, ":", &save_pair);
        if (!pattern || (fnmatch(pattern, path, 0) && fnmatch(pattern, slash ? slash + 1 : path, 0)))
            continue;
        for (char *pair = strtok_r(NULL, ":", &save_pair); pair; pair = strtok_r(NULL, ":", &save_pair)) {
            char *equals = strchr(pair, '=');
            if (equals) {
                *equals = 0;
                take(strings, pair, equals + 1);
            }
        }
    }
    free(copy);
}

/* Open MPI does not take keys as long as some of these. */
static int fits(const char *key)
{
    return strlen(key) < MPI_MAX_INFO_KEY;
}

/* The environment fills in what the program did not say; MPICH_MPIIO_HINTS has the last word, as in Cray's MPI. */
void hints_take(struct hint_strings *strings, MPI_Info info, const char *path)
{
    if (path)
        take_file(strings);
    for (int i = 0; info != MPI_INFO_NULL && i < KNOWN_COUNT; i++) {
        char value[HINT_VALUE_MAX] = "";
        int is_there = 0;
        if (fits(KNOWN[i].key))
            PMPI_Info_get(info, KNOWN[i].key, HINT_VALUE_MAX - 1, value, &is_there);
        if (is_there)
            take(strings, KNOWN[i].key, value);
    }
    if (path)
        take_variable(strings, path);
}

static int64_t number(const struct hint_strings *strings, const char *key)
{
    return strtoll(hint(strings, key), NULL, 10);
}

static int64_t choice(const char *value)
{
    return !strcmp(value, "enable") ? 1 : !strcmp(value, "disable") ? 0 : 2;
}

void hints_read(const struct hint_strings *strings, struct hints *hints)
{
    hints->cb_buffer_bytes = number(strings, "cb_buffer_size");
    hints->cb_nodes = number(strings, "cb_nodes");
    hints->cb_read = choice(hint(strings, "romio_cb_read"));
    hints->cb_write = choice(hint(strings, "romio_cb_write"));
    /* What ROMIO does with it: hints of MPI's own kind count as well. */
    if (!strcmp(hint(strings, "collective_buffering"), "false"))
        hints->cb_read = hints->cb_write = 0;
    hints->nodes_multiplier = number(strings, "cray_cb_nodes_multiplier");
    hints->stripe_count = number(strings, "striping_factor");
    hints->stripe_bytes = number(strings, "striping_unit");
    hints->start_device = number(strings, "start_iodevice");
    hints->permissions = strtoll(hint(strings, "file_perm"), NULL, 8);
    hints->lock_ahead_write = number(strings, "romio_lustre_cb_lock_ahead_write");
    hints->lock_ahead_read = number(strings, "romio_lustre_cb_lock_ahead_read");
    hints->lock_ahead_extents = number(strings, "romio_lustre_cb_lock_ahead_num_extents");
    hints->write_lock_mode = number(strings, "cray_cb_write_lock_mode");
}

int hints_to_info(const struct hint_strings *strings, MPI_Info *info)
{
    int code = PMPI_Info_create(info);

    for (int i = 0; i < KNOWN_COUNT && code == MPI_SUCCESS; i++)
        if (strings->values[i][0] && fits(KNOWN[i].key))
            code = PMPI_Info_set(*info, KNOWN[i].key, strings->values[i]);
    return code;
}

void hints_display(const struct hint_strings *strings, const char *path)
{
    fprintf(stderr, "MPIIO hints for %s:\n", path);
    for (int i = 0; i < KNOWN_COUNT; i++)
        if (strings->values[i][0])
            fprintf(stderr, "  %-38s = %s\n", KNOWN[i].key, strings->values[i]);
}
