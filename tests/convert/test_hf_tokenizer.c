/* Vocabularies of Hugging Face folders: small ones written here, good and hostile. That the tokens
 * of whole texts are those of transformers is tested in cli/test_convert.c. */
#include "convert/hf_tokenizer.h"

#include "folder.h"
#include "tokenizer/pretokenize.h"

#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define QWEN2                                                                                      \
    ENDINGS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"   \
            "\\s+(?!\\S)|\\s+"

/* tokenizer.json of five tokens; pieces may be replaced. */
struct recipe {
    const char *expression; /* of the Split step; NULL: QWEN2 */
    const char *pre;        /* the whole pre-tokenizer instead */
    const char *model;      /* members of the model; NULL: a vocabulary */
    const char *added;      /* the list; NULL: <end> with id 4 */
    const char *more;       /* members of the root */
};

static json_t *make(const struct recipe *r)
{
    json_error_t problem;
    json_t *pre =
        r->pre ? json_loads(r->pre, 0, &problem)
               : json_pack("{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b}]}", "type", "Sequence",
                           "pretokenizers", "type", "Split", "pattern", "Regex",
                           r->expression ? r->expression : QWEN2, "behavior", "Isolated", "invert",
                           0, "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0);
    const char *usual = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aba\":3},"
                        "\"merges\":[\"a b\",[\"ab\",\"a\"]]}";
    json_t *model = json_loads(r->model ? r->model : usual, JSON_DECODE_INT_AS_REAL, &problem);
    json_t *added =
        json_loads(r->added ? r->added : "[{\"id\":4,\"content\":\"<end>\",\"special\":true}]",
                   JSON_DECODE_INT_AS_REAL, &problem);
    json_t *more = json_loads(r->more ? r->more : "{}", JSON_DECODE_INT_AS_REAL, &problem);
    json_t *root =
        json_pack("{s:o,s:o,s:o}", "pre_tokenizer", pre, "model", model, "added_tokens", added);
    if (!root || !more)
        fail_msg("a recipe is no JSON: %s", problem.text);
    json_object_update(root, more);
    json_decref(more);
    return root;
}

static enum status read_recipe(struct hf_tokenizer *t, const struct recipe *r, const char *name,
                               struct error *err)
{
    assert_int_equal(hf_tokenizer_reserve(t, 6, NULL), STATUS_OK);
    return hf_tokenizer_read_json(t, make(r), "tokenizer.json", name, err);
}

static void test_good(void **state)
{
    (void)state;
    struct hf_tokenizer t;
    struct error err;
    const struct recipe recipe = {
        .more = "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                "\"SpecialToken\":{\"id\":\"<end>\"}},{\"Sequence\":{\"id\":\"A\"}}]}}"};
    if (read_recipe(&t, &recipe, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_string_equal(t.pre, "qwen2");
    assert_int_equal(t.n_named, 5);
    assert_true(text_is(t.texts[3], "aba"));
    assert_int_equal(t.types[3], HF_NORMAL);
    assert_true(text_is(t.texts[4], "<end>"));
    assert_int_equal(t.types[4], HF_CONTROL);
    assert_int_equal(t.n_merges, 2);
    assert_true(text_is(t.merges[0], "a b"));
    assert_true(text_is(t.merges[1], "ab a"));
    assert_true(t.add_bos && !t.add_eos);
    assert_int_equal(t.bos, 4);
    hf_tokenizer_close(&t);
}

/* A name told by hand is not compared with the expression. */
static void test_chosen_name(void **state)
{
    (void)state;
    struct hf_tokenizer t;
    const struct recipe recipe = {.expression = "something"};
    assert_int_equal(read_recipe(&t, &recipe, "gpt-2", NULL), STATUS_OK);
    assert_string_equal(t.pre, "gpt-2");
    hf_tokenizer_close(&t);
}

/* Every name that can be told is one that Trine's own tokenizer knows, with the same rule for whole
 * pieces. */
static void test_names_are_known(void **state)
{
    (void)state;
    bool ignore_merges;
    size_t i = 0;
    for (const char *name; (name = hf_pre_tokenizer_name(i, &ignore_merges)); i++) {
        const struct pretokenizer_row *row = pretokenizer_find(text_of(name));
        assert_non_null(row);
        assert_int_equal(row->ignore_merges, ignore_merges);
    }
    assert_int_equal(i, 5);
}

static void test_pre_tokenizers(void **state)
{
    (void)state;
    static const struct {
        struct recipe recipe;
        const char *name;
    } cases[] = {
        {{.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"}, "gpt-2"},
        {{.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
                 "\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                 "\"use_regex\":true}]}"},
         "smollm"},
        {{.expression = ENDINGS "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                                "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|"
                                "\\s+"},
         "qwen35"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_tokenizer t;
        struct error err;
        if (read_recipe(&t, &cases[i].recipe, NULL, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_string_equal(t.pre, cases[i].name);
        hf_tokenizer_close(&t);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        struct recipe recipe;
        const char *word;
    } cases[] = {
        {{.expression = "\\p{L}+|\\d+"}, "'\\p{L}+|\\d+'"},
        {{.pre = "{\"type\":\"Metaspace\"}"}, "tokenizer.model"},
        {{.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"}, "--pre-tokenizer"},
        {{.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Punctuation\"},{\"type\":"
                 "\"ByteLevel\",\"add_prefix_space\":false}]}"},
         "Punctuation"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"ignore_merges\":true}"},
         "ignore_merges"},
        {{.model = "{\"type\":\"Unigram\",\"vocab\":{},\"merges\":[]}"}, "Unigram"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{},\"merges\":[],\"byte_fallback\":true}"},
         "byte_fallback"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{},\"merges\":[],\"dropout\":0.5}"}, "dropout"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}"},
         "end_of_word_suffix"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}"}, "'vocab'"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":6},\"merges\":[]}"}, "has id 6"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}"}, "has id -1"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}"}, "a text for its"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"}, "stands for"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":{}}"}, "'merges'"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}"}, "merge 0"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a \"]}"}, "merge 0"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}"}, "merge 0"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}"}, "no token"},
        {{.added = "[{\"id\":3,\"content\":\"<end>\"}]"}, "stands for"},
        {{.added = "[{\"id\":9,\"content\":\"<end>\"}]"}, "has id 9"},
        {{.added = "[{\"id\":4}]"}, "no content"},
        {{.added = "[5]"}, "'id' is absent"},
        {{.more = "{\"normalizer\":{\"type\":\"Lowercase\"}}"}, "Lowercase"},
        {{.more = "{\"post_processor\":{\"type\":\"BertProcessing\"}}"}, "BertProcessing"},
        {{.more = "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                  "\"SpecialToken\":{\"id\":\"<none>\"}}]}}"},
         "<none>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_tokenizer t;
        struct error err = {0};
        enum status status = read_recipe(&t, &cases[i].recipe, NULL, &err);
        if (status == STATUS_OK || !strstr(err.text, cases[i].word))
            fail_msg("case %zu: expected '%s', got: %s", i, cases[i].word, err.text);
        assert_non_null(strstr(err.text, "tokenizer.json"));
        hf_tokenizer_close(&t);
    }
}

/* A SentencePiece model that grows: fields of the wire format by hand. */
struct pieces {
    uint8_t bytes[512];
    size_t n;
};

static void add_piece(struct pieces *p, const char *text, float score, int type)
{
    size_t n = strlen(text);
    uint8_t *out = p->bytes + p->n;
    out[0] = 1 << 3 | 2;
    out[1] = (uint8_t)(2 + n + 5 + 2);
    out[2] = 1 << 3 | 2;
    out[3] = (uint8_t)n;
    memcpy(out + 4, text, n);
    out[4 + n] = 2 << 3 | 5;
    store_f32(out + 5 + n, score);
    out[9 + n] = 3 << 3;
    out[10 + n] = (uint8_t)type;
    p->n += 11 + n;
}

/* Training of that kind; a normaliser that adds a space or not and removes extra ones or not. */
static void add_specs(struct pieces *p, int kind, int adds_space, int removes)
{
    const uint8_t specs[] = {
        2 << 3 | 2,          2,      3 << 3,          (uint8_t)kind, 3 << 3 | 2, 4, 3 << 3,
        (uint8_t)adds_space, 4 << 3, (uint8_t)removes};
    memcpy(p->bytes + p->n, specs, sizeof specs);
    p->n += sizeof specs;
}

static enum status read_pieces(struct hf_tokenizer *t, const struct pieces *p, size_t n,
                               struct error *err)
{
    assert_int_equal(hf_tokenizer_reserve(t, 4, NULL), STATUS_OK);
    uint8_t *bytes = malloc(n ? n : 1); /* so that a read beyond it is seen */
    memcpy(bytes, p->bytes, n);
    enum status status = hf_tokenizer_read_pieces(t, bytes, n, "tokenizer.model", err);
    if (status == STATUS_OK && t->n_named)
        assert_true(text_is(t->texts[0], "<unk>"));
    for (uint32_t i = 0; i < 4; i++)
        t->texts[i] = (struct text){0}; /* they pointed into the copy */
    free(bytes);
    return status;
}

static void test_pieces(void **state)
{
    (void)state;
    struct hf_tokenizer t;
    struct pieces p = {.n = 0};
    struct error err;
    add_piece(&p, "<unk>", 0, HF_UNKNOWN);
    add_piece(&p, "<0x41>", 0, HF_BYTE);
    add_piece(&p, "\xe2\x96\x81x", -3.5f, HF_NORMAL);
    add_specs(&p, 2, 1, 0);
    assert_int_equal(read_pieces(&t, &p, p.n, NULL), STATUS_OK);
    assert_int_equal(t.n_named, 3);
    assert_int_equal(t.types[0], HF_UNKNOWN);
    assert_int_equal(t.types[1], HF_BYTE);
    assert_true(t.scores[2] == -3.5f);
    assert_true(t.is_spm && t.add_space_prefix);
    hf_tokenizer_close(&t);
    for (size_t n = 0; n < p.n; n++) { /* cut anywhere: without the kind it is a unigram model */
        assert_int_not_equal(read_pieces(&t, &p, n, &err), STATUS_OK);
        hf_tokenizer_close(&t);
    }
}

static void test_other_pieces_are_refused(void **state)
{
    (void)state;
    static const struct {
        int kind, removes, n;
        const char *word;
    } cases[] = {{1, 0, 1, "unigram"},
                 {3, 0, 1, "kind 3"},
                 {2, 1, 1, "extra spaces"},
                 {2, 0, 5, "has id 4"},
                 {2, 0, 0, "no SentencePiece model"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_tokenizer t;
        struct pieces p = {.n = 0};
        struct error err = {0};
        for (int k = 0; k < cases[i].n; k++)
            add_piece(&p, "<unk>", 0, HF_UNKNOWN);
        add_specs(&p, cases[i].kind, 1, cases[i].removes);
        if (read_pieces(&t, &p, p.n, &err) == STATUS_OK || !strstr(err.text, cases[i].word))
            fail_msg("expected '%s', got: %s", cases[i].word, err.text);
        hf_tokenizer_close(&t);
    }
}

static void write_json(const char *dir, const char *name, json_t *root)
{
    char *text = json_dumps(root, 0);
    write_text(in_folder(dir, name), text);
    free(text);
    json_decref(root);
}

/* Ids and templates come from four files; rows without a token get a text. */
static void test_folder(void **state)
{
    (void)state;
    struct hf_tokenizer t;
    struct error err;
    json_t *config = json_loads("{\"eos_token_id\":[1,2],\"pad_token_id\":3,\"bos_token_id\":-1}",
                                JSON_DECODE_INT_AS_REAL, NULL);
    write_json("vocab", "tokenizer.json", make(&(struct recipe){0}));
    write_text(
        in_folder("vocab", "tokenizer_config.json"),
        "{\"eos_token\":{\"content\":\"<end>\"},\"model_max_length\":"
        "1000000000000000019884624838656,\"add_bos_token\":true,\"chat_template\":["
        "{\"name\":\"default\",\"template\":\"A\"},{\"name\":\"tool\",\"template\":\"B\"}]}");
    write_text(in_folder("vocab", "special_tokens_map.json"), "{\"bos_token\":\"ab\"}");
    write_text(in_folder("vocab", "generation_config.json"), "{\"eos_token_id\":[4,0]}");
    mkdir(in_folder("vocab", "additional_chat_templates"), 0777);
    if (hf_tokenizer_open(&t, scratch_path("vocab"), 7, NULL, config, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(t.ends[0], 4);
    assert_int_equal(t.ends[1], 0);
    assert_int_equal(t.ends[2], 1);
    assert_non_null(strstr(t.notes, "end token 2 is one more"));
    assert_non_null(strstr(t.notes, "'add_bos_token': true"));
    assert_non_null(strstr(t.notes, "additional_chat_templates"));
    assert_int_equal(t.bos, 2);
    assert_int_equal(t.types[2], HF_CONTROL);
    assert_int_equal(t.padding, 3);
    assert_int_equal(t.unknown, -1);
    assert_int_equal(t.n_named, 5);
    assert_true(text_is(t.texts[6], "[PAD6]"));
    assert_int_equal(t.types[6], HF_UNUSED);
    assert_int_equal(t.n_templates, 2);
    assert_string_equal(t.templates[0].name, "default");
    assert_true(text_is(t.templates[1].text, "B"));
    hf_tokenizer_close(&t);
    write_text(in_folder("vocab", "generation_config.json"), "{\"eos_token_id\":[4,6]}");
    assert_int_equal(hf_tokenizer_open(&t, scratch_path("vocab"), 7, NULL, config, &err),
                     STATUS_FORMAT);
    assert_non_null(strstr(err.text, "'eos_token_id' is 6"));
    json_decref(config);
}

/* tokenizer.model with tokens that two files add. */
static void test_added_to_pieces(void **state)
{
    (void)state;
    struct hf_tokenizer t;
    struct error err;
    struct pieces p = {.n = 0};
    add_piece(&p, "<unk>", 0, HF_UNKNOWN);
    add_piece(&p, "x", -1, HF_NORMAL);
    add_specs(&p, 2, 0, 0);
    write_whole(in_folder("spm", "tokenizer.model"), p.bytes, p.n);
    write_text(in_folder("spm", "added_tokens.json"), "{\"<pad>\":2,\"x\":1}");
    write_text(in_folder("spm", "tokenizer_config.json"),
               "{\"added_tokens_decoder\":{\"3\":{\"content\":\"<s>\",\"special\":true},\"0\":{"
               "\"content\":\"<unk>\"}},\"bos_token\":\"<s>\",\"add_bos_token\":false,"
               "\"legacy\":false}");
    if (hf_tokenizer_open(&t, scratch_path("spm"), 4, NULL, NULL, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(t.types[0], HF_UNKNOWN);
    assert_int_equal(t.types[1], HF_NORMAL);
    assert_int_equal(t.types[2], HF_USER_DEFINED);
    assert_int_equal(t.types[3], HF_CONTROL);
    assert_int_equal(t.bos, 3);
    assert_false(t.add_bos || t.add_space_prefix);
    assert_non_null(strstr(t.notes, "legacy"));
    hf_tokenizer_close(&t);
}

/* Opens a folder of which one file is replaced, and expects a refusal that names it. */
static void expect_refused(const char *dir, const char *name, const char *text, const char *word)
{
    struct hf_tokenizer t;
    struct error err = {0};
    write_text(in_folder(dir, name), text);
    enum status status = hf_tokenizer_open(&t, scratch_path(dir), 7, NULL, NULL, &err);
    if (status == STATUS_OK || !strstr(err.text, word) || !strstr(err.text, name))
        fail_msg("%s: expected '%s', got: %s", text, word, err.text);
    hf_tokenizer_close(&t);
    remove(in_folder(dir, name));
}

static void test_templates_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *value, *word;
    } cases[] = {
        {"5", "'chat_template' is a number"},
        {"{\"default\":\"A\"}", "'chat_template' is an object"},
        {"[{\"name\":\"tool\"}]", "entry 0 of 'chat_template' is one without a template"},
        {"[{\"name\":\"a\",\"template\":\"A\"},{\"template\":\"B\"}]", "entry 1"},
        {"[\"A\"]", "entry 0 of 'chat_template' is a text"},
        {"[{\"name\":\"\",\"template\":\"A\"}]", "a name of 0 bytes"},
        {"[{\"name\":\"a\",\"template\":\"A\"},{\"name\":\"a\",\"template\":\"B\"}]",
         "two templates of the name 'a'"},
    };
    write_json("templates", "tokenizer.json", make(&(struct recipe){0}));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"chat_template\":%s}", cases[i].value);
        expect_refused("templates", "tokenizer_config.json", text, cases[i].word);
    }
    char text[256], name[102] = "";
    memset(name, 'n', 101);
    snprintf(text, sizeof text, "{\"chat_template\":[{\"name\":\"%s\",\"template\":\"A\"}]}", name);
    expect_refused("templates", "tokenizer_config.json", text, "a name of 101 bytes");
}

/* chat_template.jinja replaces the template without a name; an empty one is none. */
static void test_template_file(void **state)
{
    (void)state;
    struct hf_tokenizer t;
    const char *dir = scratch_path("templates");
    write_json("templates", "tokenizer.json", make(&(struct recipe){0}));
    write_text(in_folder("templates", "tokenizer_config.json"), "{\"chat_template\":\"A\"}");
    write_text(in_folder("templates", "chat_template.jinja"), "");
    assert_int_equal(hf_tokenizer_open(&t, dir, 7, NULL, NULL, NULL), STATUS_OK);
    assert_int_equal(t.n_templates, 1);
    assert_true(text_is(t.templates[0].text, "A"));
    assert_non_null(strstr(t.notes, "chat_template.jinja is empty"));
    hf_tokenizer_close(&t);
    write_text(in_folder("templates", "chat_template.jinja"), "J");
    assert_int_equal(hf_tokenizer_open(&t, dir, 7, NULL, NULL, NULL), STATUS_OK);
    assert_int_equal(t.n_templates, 1);
    assert_true(text_is(t.templates[0].text, "J"));
    assert_non_null(strstr(t.notes, "tokenizer_config.json is left out"));
    hf_tokenizer_close(&t);
    remove(in_folder("templates", "chat_template.jinja"));
    remove(in_folder("templates", "tokenizer_config.json"));
}

/* Row 6 has no token and would be named as token 5 is; a token of that name in its own row is fine. */
static void test_padding_names(void **state)
{
    (void)state;
    struct hf_tokenizer t;
    struct error err = {0};
    write_json("pads", "tokenizer.json",
               make(&(struct recipe){.added = "[{\"id\":5,\"content\":\"[PAD6]\"}]"}));
    assert_int_equal(hf_tokenizer_open(&t, scratch_path("pads"), 7, NULL, NULL, &err),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "token 5 is '[PAD6]'"));
    write_json("pads", "tokenizer.json",
               make(&(struct recipe){.added = "[{\"id\":5,\"content\":\"[PAD5]\"}]"}));
    assert_int_equal(hf_tokenizer_open(&t, scratch_path("pads"), 7, NULL, NULL, &err), STATUS_OK);
    assert_true(text_is(t.texts[6], "[PAD6]"));
    hf_tokenizer_close(&t);
}

/* Added tokens beside pieces: ids as keys, and three files that must agree. */
static void test_added_tokens_are_compared(void **state)
{
    (void)state;
    static const char *const keys[] = {"", "-1", " 1", "1x", "18446744073709551617"};
    struct hf_tokenizer t;
    struct pieces p = {.n = 0};
    add_piece(&p, "<unk>", 0, HF_UNKNOWN);
    add_piece(&p, "x", -1, HF_NORMAL);
    add_specs(&p, 2, 0, 0);
    write_whole(in_folder("beside", "tokenizer.model"), p.bytes, p.n);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char text[128], word[64];
        snprintf(text, sizeof text, "{\"added_tokens_decoder\":{\"%s\":{\"content\":\"x\"}}}",
                 keys[i]);
        snprintf(word, sizeof word, "the key '%s'", keys[i]);
        expect_refused("beside", "tokenizer_config.json", text, word);
    }
    expect_refused("beside", "tokenizer_config.json", "{\"added_tokens_decoder\":[]}", "a list");
    expect_refused("beside", "tokenizer_config.json",
                   "{\"added_tokens_decoder\":{\"1\":{\"content\":\"y\"}}}", "stands for");
    expect_refused("beside", "tokenizer.json", "{\"added_tokens\":[{\"id\":1,\"content\":\"y\"}]}",
                   "stands for");
    expect_refused("beside", "tokenizer.json", "{\"added_tokens\":{}}", "'added_tokens' is an");
    write_text(in_folder("beside", "tokenizer.json"),
               "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":2,"
               "\"content\":\"<s>\",\"special\":true}]}");
    assert_int_equal(hf_tokenizer_open(&t, scratch_path("beside"), 7, NULL, NULL, NULL), STATUS_OK);
    assert_int_equal(t.types[0], HF_UNKNOWN);
    assert_true(text_is(t.texts[2], "<s>"));
    assert_int_equal(t.types[2], HF_CONTROL);
    hf_tokenizer_close(&t);
}

/* Every allocation may fail. */
static void test_no_memory(void **state)
{
    (void)state;
    const char *const dirs[] = {"vocab", "spm"};
    write_text(in_folder("vocab", "generation_config.json"), "{}");
    for (int i = 0; i < 2; i++) {
        enum status status = STATUS_MEMORY;
        for (int n = 0; status == STATUS_MEMORY; n++) {
            struct hf_tokenizer t;
            memory_fail_after(n);
            status = hf_tokenizer_open(&t, scratch_path(dirs[i]), 7, NULL, NULL, NULL);
            memory_fail_after(-1);
            hf_tokenizer_close(&t);
            assert_true(n < 200);
        }
        assert_int_equal(status, STATUS_OK);
    }
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_chosen_name),
        cmocka_unit_test(test_names_are_known),
        cmocka_unit_test(test_pre_tokenizers),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_other_pieces_are_refused),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_added_to_pieces),
        cmocka_unit_test(test_templates_are_refused),
        cmocka_unit_test(test_template_file),
        cmocka_unit_test(test_padding_names),
        cmocka_unit_test(test_added_tokens_are_compared),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
