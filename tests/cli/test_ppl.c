/* `trine ppl` with the model that ships: the protocol against logits that `trine logits` writes,
 * the same bits however it runs, planted errors, greedy texts, tasks, refusals. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fixture.h"
#include "base/reader.h"
#include "measure/perplexity.h"
#include "model/model_load.h"
#include "tokenizer/tokenizer.h"

#define MODEL     "models/trine-kjv.gguf"
#define TEXT_FILE "models/heldout.txt"

static const char *trine;

/* The JSON result of a run that succeeds. The caller decrefs. */
static json_t *ppl(const char *arguments)
{
    struct outcome o = run_command("%s ppl %s %s --json -q", trine, MODEL, arguments);
    json_error_t problem;
    json_t *result = json_loads(o.out, JSON_REJECT_DUPLICATES, &problem);
    if (o.status != 0 || !result || o.err[0])
        fail_msg("ppl %s: status %d, output '%s', messages: %s", arguments, o.status, o.out, o.err);
    outcome_done(&o);
    return result;
}

static double number_of(json_t *result, const char *name)
{
    if (!json_is_real(json_object_get(result, name)))
        fail_msg("%s is no number", name);
    return json_real_value(json_object_get(result, name));
}

static void assert_near(double found, double expected, double most)
{
    if (!(fabs(found - expected) <= most))
        fail_msg("%.17g instead of %.17g", found, expected);
}

/* The first tokens of the text. */
static void text_tokens(int32_t *ids, size_t n)
{
    struct model model;
    struct tokenizer *tokenizer;
    struct token_list list = {0};
    struct error err;
    size_t size;
    char *bytes = read_whole(TEXT_FILE, &size);
    assert_int_equal(model_open(&model, MODEL, &err), STATUS_OK);
    assert_int_equal(tokenizer_open(&tokenizer, &model.file, MODEL, NULL, &err), STATUS_OK);
    struct text text = {bytes, size < 4096 ? size : 4096};
    assert_int_equal(tokenizer_encode(tokenizer, text, true, false, &list, &err), STATUS_OK);
    assert_true(list.n >= n && list.ids[0] == tokenizer_bos(tokenizer));
    memcpy(ids, list.ids, n * sizeof *ids);
    token_list_done(&list);
    tokenizer_close(tokenizer);
    model_close(&model);
    free(bytes);
}

/* Adds the negative log likelihoods of a chunk of 16: its first token is BOS, which is id 0, and
 * what follows positions 8 to 14 is scored. */
static void add_chunk(struct mean *nll, const int32_t *chunk)
{
    const char *path = scratch_path("chunk.logits");
    char tokens[256] = "0";
    size_t size;
    for (int i = 1; i < 16; i++)
        snprintf(tokens + strlen(tokens), sizeof tokens - strlen(tokens), ",%d", chunk[i]);
    struct outcome o = run_command("%s logits %s --tokens %s -o %s", trine, MODEL, tokens, path);
    assert_int_equal(o.status, 0);
    outcome_done(&o);
    float *logits = (float *)read_whole(path, &size);
    size_t n_vocab = size / sizeof *logits / 16;
    for (size_t i = 8; i < 15; i++) {
        const float *row = logits + i * n_vocab;
        double sum = 0;
        for (size_t k = 0; k < n_vocab; k++)
            sum += exp(row[k]);
        mean_add(nll, log(sum) - (double)row[chunk[i + 1]]);
    }
    free(logits);
}

static void test_protocol(void **state)
{
    (void)state;
    int32_t tokens[48];
    struct mean nll = {0};
    text_tokens(tokens, 48);
    for (int i = 0; i < 3; i++)
        add_chunk(&nll, tokens + 16 * i);
    json_t *result = ppl("-f " TEXT_FILE " -c 16 --chunks 3");
    assert_int_equal(json_integer_value(json_object_get(result, "n_scored")), 21);
    assert_near(number_of(result, "ppl") / exp(nll.value), 1, 1e-12);
    assert_near(number_of(result, "ppl_error") / perplexity_error(&nll), 1, 1e-9);
    json_decref(result);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const ways[] = {"-t 1",      "-t 2 -b 32",
                                       "-b 500",    "-b 1 -t 1",
                                       "-t 5",      "--nodes 2 -t 2 --act-scale token",
                                       "--isa avx2"};
    json_t *first = ppl("-f " TEXT_FILE " -c 100 --chunks 5 -t 2");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments, "-f %s -c 100 --chunks 5 %s", TEXT_FILE, ways[i]);
        json_t *result = ppl(arguments);
        if (!json_equal(first, result))
            fail_msg("%s: %.17g instead of %.17g", ways[i], number_of(result, "ppl"),
                     number_of(first, "ppl"));
        json_decref(result);
    }
    json_decref(first);
}

/* From standard input, and as people read it. */
static void test_words(void **state)
{
    (void)state;
    json_t *result = ppl("-f " TEXT_FILE " -c 64 --chunks 2");
    char line[128];
    snprintf(line, sizeof line, "Final estimate: PPL = %.4f +/- %.5f\n", number_of(result, "ppl"),
             number_of(result, "ppl_error"));
    struct outcome o =
        run_command("%s ppl -m %s -f - -c 64 --chunks 2 < %s", trine, MODEL, TEXT_FILE);
    assert_int_equal(o.status, 0);
    assert_string_equal(o.out, line);
    snprintf(line, sizeof line, "[2]%.4f", number_of(result, "ppl"));
    assert_non_null(strstr(o.err, line));
    assert_non_null(strstr(o.err, "0 s left"));
    outcome_done(&o);
    json_decref(result);
}

/* The engine against the float pass; the float pass against itself, also without the text. */
static void test_divergence(void **state)
{
    (void)state;
    char arguments[512];
    const char *base = scratch_path("base");
    snprintf(arguments, sizeof arguments, "-f %s -c 64 --chunks 6 --reference --kl-base %s",
             TEXT_FILE, base);
    json_t *own = ppl(arguments);
    snprintf(arguments, sizeof arguments, "--kl %s --reference", base);
    json_t *same = ppl(arguments), *kl = json_object_get(same, "kl");
    assert_true(number_of(own, "ppl") == number_of(same, "ppl"));
    assert_true(number_of(kl, "maximum") < 1e-7);
    assert_true(number_of(kl, "total_variation_maximum") < 1e-4);
    assert_true(number_of(kl, "same_top") == 1);
    assert_near(number_of(kl, "ppl_base") / number_of(own, "ppl"), 1, 1e-4);
    snprintf(arguments, sizeof arguments, "-f %s --kl %s", TEXT_FILE, base);
    json_t *engine = ppl(arguments);
    kl = json_object_get(engine, "kl");
    assert_true(number_of(kl, "mean") > 1e-6 && number_of(kl, "mean") < 0.005);
    assert_true(number_of(kl, "maximum") >= number_of(kl, "p99"));
    assert_true(number_of(kl, "p99") > number_of(kl, "median"));
    assert_near(number_of(kl, "ln_ratio"),
                log(number_of(engine, "ppl") / number_of(kl, "ppl_base")), 1e-9);
    json_decref(own);
    json_decref(same);
    json_decref(engine);
}

/* In one row of the base one log p is raised by d, and all are lowered by log z, so that they sum
 * to 1 again: the KL of that row is p' d - log z with p' = p e^d / z, that of the others
 * stays 0. */
static void test_planted_logit(void **state)
{
    (void)state;
    const char *base = scratch_path("planted");
    char arguments[512];
    snprintf(arguments, sizeof arguments, "-f %s -c 32 --chunks 2 --kl-base %s", TEXT_FILE, base);
    json_decref(ppl(arguments));
    size_t size, n_vocab = 2048;
    char *bytes = read_whole(base, &size);
    uint8_t *row = (uint8_t *)bytes + 20 + 64 * 4 + 7 * (8 + 2 * n_vocab);
    double step = load_f32(row), lowest = load_f32(row + 4);
    size_t token = 0;
    for (size_t i = 0; i < n_vocab; i++)
        if (load_u16(row + 8 + 2 * i) < 65535 - 1.01 / step &&
            load_u16(row + 8 + 2 * i) > load_u16(row + 8 + 2 * token))
            token = i;
    unsigned code = load_u16(row + 8 + 2 * token), more = (unsigned)(1 / step);
    double d = more * step, p = exp(lowest + step * code), z = 1 + p * expm1(d);
    store_u16(row + 8 + 2 * token, (uint16_t)(code + more));
    store_f32(row + 4, (float)(lowest - log(z)));
    write_whole(base, bytes, size);
    free(bytes);
    snprintf(arguments, sizeof arguments, "--kl %s", base);
    json_t *result = ppl(arguments), *kl = json_object_get(result, "kl");
    double expected = p * exp(d) / z * d - log(z);
    assert_true(expected > 0.01);
    assert_near(number_of(kl, "maximum"), expected, 1e-4);
    assert_near(number_of(kl, "mean") * 30, expected, 1e-4);
    assert_near(number_of(kl, "total_variation_maximum"), p * exp(d) / z - p, 1e-4);
    json_decref(result);
}

static void test_greedy(void **state)
{
    (void)state;
    const char *prompts = scratch_path("prompts"), *out = scratch_path("greedy.jsonl");
    static const char text[] = "In the beginning\nThus saith the LORD\n\nAnd it came to pass, when "
                               "the king heard the words\nThe wise man\n";
    char arguments[512];
    write_whole(prompts, text, strlen(text));
    snprintf(arguments, sizeof arguments, "--greedy %s -n 12 --greedy-out %s", prompts, out);
    json_decref(ppl(arguments));
    snprintf(arguments, sizeof arguments, "--greedy %s -n 12 --against %s -np 3 -b 5 -t 1", prompts,
             out);
    json_t *result = ppl(arguments), *against = json_object_get(result, "against");
    assert_int_equal(json_integer_value(json_object_get(against, "n_same")), 4);
    assert_true(json_is_null(json_object_get(against, "median_first_difference")));
    json_decref(result);
    /* the same text as `run` */
    struct outcome o = run_command("%s run %s -p 'The wise man' -n 12 --temp 0 -q", trine, MODEL);
    size_t size;
    char *lines = read_whole(out, &size), expected[256];
    snprintf(expected, sizeof expected, "\"text\":\"%s", o.out);
    char *newline = strchr(expected, '\n'); /* which JSON writes otherwise */
    if (newline)
        *newline = 0;
    if (!strstr(lines, expected))
        fail_msg("no '%s' in %s", expected, lines);
    outcome_done(&o);
    /* one other token in the second text, and a third that ends early */
    char *second = strchr(lines, '\n') + 1, *third = strchr(second, '\n') + 1;
    char *digit = strchr(strchr(strstr(second, "\"tokens\":[") + 10, ',') + 1, ',') + 1;
    *digit = *digit == '9' ? '8' : (char)(*digit + 1);
    char *end = strchr(strstr(third, "\"tokens\":["), ',');
    memset(end, ' ', (size_t)(strchr(end, ']') - end));
    write_whole(out, lines, size);
    free(lines);
    result = ppl(arguments);
    against = json_object_get(result, "against");
    json_t *places = json_object_get(against, "first_differences");
    assert_int_equal(json_integer_value(json_object_get(against, "n_same")), 2);
    assert_int_equal(json_integer_value(json_array_get(places, 1)), 2);
    assert_int_equal(json_integer_value(json_array_get(places, 2)), 1);
    assert_true(json_is_null(json_array_get(places, 0)));
    assert_near(number_of(against, "median_first_difference"), 1.5, 0);
    json_decref(result);
}

/* The model has read only one book: its verses are likelier than what is in no verse. */
static void test_tasks(void **state)
{
    (void)state;
    const char *tasks = scratch_path("tasks.jsonl");
    static const char text[] =
        "{\"ctx\": \"In the beginning God created the heaven and the\", \"endings\": "
        "[\"computer.\", "
        "\"earth.\", \"lawyer.\", \"swimming pool.\"], \"label\": 1}\n"
        "{\"ctx\": \"And God said, Let there be light: and there was\", \"endings\": [\"light.\", "
        "\"a taxi.\"], \"label\": \"1\"}\n"
        "{\"question\": \"Who built the ark?\", \"choices\": {\"text\": [\"Zebra gum\", \"Noah\"], "
        "\"label\": [\"A\", \"B\"]}, \"answerKey\": \"B\"}\n"
        "{\"sentence\": \"And the LORD spake unto _, saying, Speak unto the children of Israel\", "
        "\"option1\": \"qwertyuiop\", \"option2\": \"Moses\", \"answer\": \"2\"}\n";
    char arguments[512];
    write_whole(tasks, text, strlen(text));
    snprintf(arguments, sizeof arguments, "--tasks %s", tasks);
    json_t *result = ppl(arguments), *hellaswag = json_array_get(result, 0);
    assert_int_equal(json_array_size(result), 3);
    /* of two items the second is answered rightly, but its label says otherwise */
    assert_int_equal(json_integer_value(json_object_get(hellaswag, "n")), 2);
    assert_near(number_of(hellaswag, "acc"), 0.5, 0);
    assert_near(number_of(hellaswag, "acc_error"), 0.5, 1e-15);
    assert_near(number_of(json_array_get(result, 1), "acc"), 1, 0);
    assert_near(number_of(json_array_get(result, 2), "acc"), 1, 0);
    assert_true(json_is_null(json_object_get(json_array_get(result, 2), "acc_error")));
    snprintf(arguments, sizeof arguments, "--tasks %s -b 7 -t 1", tasks);
    json_t *again = ppl(arguments);
    assert_true(json_equal(result, again));
    json_decref(result);
    json_decref(again);
}

static void expect_refusal(int status, const char *arguments, const char *word)
{
    struct outcome o = run_command("%s ppl %s -q", trine, arguments);
    const char *newline = strchr(o.err, '\n');
    if (o.status != status || o.out_bytes || !newline || newline[1] || !strstr(o.err, word))
        fail_msg("ppl %s: status %d, output '%s', messages: %s", arguments, o.status, o.out, o.err);
    outcome_done(&o);
}

static void test_wrong_usage(void **state)
{
    (void)state;
    expect_refusal(2, "-f " TEXT_FILE, "no model");
    expect_refusal(2, MODEL, "nothing to measure");
    expect_refusal(2, MODEL " -f x --tasks y", "too much");
    expect_refusal(2, MODEL " --kl-base x", "-f FILE");
    expect_refusal(2, MODEL " -f x --against y", "--greedy FILE");
    expect_refusal(2, MODEL " -f " TEXT_FILE " -c 2", "at least 3");
    expect_refusal(2, MODEL " -f " TEXT_FILE " -ctk f32", "--reference");
    expect_refusal(2, MODEL " --tasks x -c 16", "-c has no effect");
    expect_refusal(2, MODEL " --tasks x -n 16", "-n has no effect");
    expect_refusal(2, MODEL " --tasks x -np 2", "-np has no effect");
    expect_refusal(2, MODEL " --tasks x --chunks 2", "--chunks has no effect");
    expect_refusal(2, MODEL " -f " TEXT_FILE " -n 16", "-n has no effect");
    expect_refusal(2, MODEL " -f " TEXT_FILE " -np 2", "-np has no effect");
    expect_refusal(2, MODEL " --greedy x -c 16", "-c has no effect");
    expect_refusal(2, MODEL " --greedy x --chunks 2", "--chunks has no effect");
    expect_refusal(2, MODEL " --kl x --special", "--special has no effect");
}

/* No input is replaced, whatever name it goes by. */
static void test_same_file(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *word;
    } pairs[] = {{"-f %s --kl-base %s", "-f and --kl-base"},
                 {"-f " TEXT_FILE " --kl %s --kl-base %s", "--kl and --kl-base"},
                 {"--greedy %s --greedy-out %s", "--greedy and --greedy-out"},
                 {"--greedy " TEXT_FILE " --against %s --greedy-out %s", "--against and --greedy"}};
    const char *file = scratch_path("input");
    char beside[512], arguments[1200], words[1100];
    snprintf(beside, sizeof beside, "%.*s./%s", (int)(strrchr(file, '/') + 1 - file), file,
             strrchr(file, '/') + 1);
    write_whole(file, "In the beginning\n", 17);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        snprintf(words, sizeof words, pairs[i].arguments, file, beside);
        snprintf(arguments, sizeof arguments, "%s %s", MODEL, words);
        expect_refusal(2, arguments, pairs[i].word);
    }
    snprintf(arguments, sizeof arguments, "%s -f - --kl-base %s < %s", MODEL, beside, file);
    expect_refusal(2, arguments, "-f and --kl-base");
    expect_refusal(2, MODEL " -f " TEXT_FILE " --kl-base " MODEL, "-m and --kl-base");
    expect_refusal(2, MODEL " --greedy " TEXT_FILE " --greedy-out " MODEL, "-m and --greedy-out");
    size_t size;
    char *bytes = read_whole(file, &size);
    assert_string_equal(bytes, "In the beginning\n");
    free(bytes);
}

/* Files that cannot be used are found before the work begins. */
static void test_greedy_files_first(void **state)
{
    (void)state;
    static const char *const options[] = {"--against", "--greedy-out"};
    const char *prompts = scratch_path("prompts"), *absent = scratch_path("absent/file");
    write_whole(prompts, "In the beginning\n", 17);
    for (int i = 0; i < 2; i++) {
        struct outcome o = run_command("%s ppl %s --greedy %s -n 1 %s %s", trine, MODEL, prompts,
                                       options[i], absent);
        const char *newline = strchr(o.err, '\n');
        if (o.status != 1 || o.out_bytes || !newline || newline[1] || !strstr(o.err, absent))
            fail_msg("%s: status %d, output '%s', messages: %s", options[i], o.status, o.out,
                     o.err);
        outcome_done(&o);
    }
}

/* The error of a run that fails half-way has a line of its own. */
static void test_failure_half_way(void **state)
{
    (void)state;
    const char *base = scratch_path("half");
    char arguments[512];
    snprintf(arguments, sizeof arguments, "-f %s -c 32 --chunks 30 --kl-base %s", TEXT_FILE, base);
    json_decref(ppl(arguments));
    size_t size, n_vocab = 2048, row = 8 + 2 * n_vocab;
    char *bytes = read_whole(base, &size);
    store_f32((uint8_t *)bytes + 20 + 30 * 32 * 4 + 20 * row, NAN); /* of the second chunk */
    write_whole(base, bytes, size);
    free(bytes);
    struct outcome o = run_command("%s ppl %s --kl %s", trine, MODEL, base);
    assert_int_equal(o.status, 1);
    const char *message = strstr(o.err, "trine ppl: ");
    if (!message || message[-1] != '\n' || !strstr(o.err, "[1]"))
        fail_msg("messages: %s", o.err);
    outcome_done(&o);
}

/* A model whose answer to ':' is " y", to that " n", and then the end. */
static const char *scripted(const char *name, bool no_bos, bool add_eos)
{
    static const char *const chain[] = {"\xe2\x96\x81y", "\xe2\x96\x81n"};
    const char *path = scratch_path(name);
    fixture_write(path, &(struct fixture){
                            .chain = chain, .n_chain = 2, .no_bos = no_bos, .add_eos = add_eos});
    return path;
}

/* Some tokenizers put an end behind a text: what follows the text is still measured. */
static void test_added_end(void **state)
{
    (void)state;
    char plain[512], ends[512], prompts[512], out[512];
    snprintf(plain, sizeof plain, "%s", scripted("plain.gguf", false, false));
    snprintf(ends, sizeof ends, "%s", scripted("ends.gguf", false, true));
    snprintf(prompts, sizeof prompts, "%s", scratch_path("colon"));
    snprintf(out, sizeof out, "%s", scratch_path("colon.jsonl"));
    write_whole(prompts, "a:\n", 3);
    struct outcome o =
        run_command("%s ppl %s --greedy %s --greedy-out %s -n 8 -q", trine, plain, prompts, out);
    assert_string_equal(o.out, "1 prompt, 2 tokens\n");
    outcome_done(&o);
    o = run_command("%s ppl %s --greedy %s --against %s -n 8 -q", trine, ends, prompts, out);
    assert_string_equal(o.out, "1 prompt, 2 tokens\nSame greedy text: 1 of 1 prompt (100.00 %)\n");
    outcome_done(&o);
    /* " y" is likelier behind ':'; but the end is likelier behind " n" */
    static const char item[] = "{\"ctx\": \":\", \"endings\": [\"y\", \"n\"], \"label\": 0}\n";
    write_whole(prompts, item, strlen(item));
    for (int i = 0; i < 2; i++) {
        o = run_command("%s ppl %s --tasks %s -q", trine, i ? ends : plain, prompts);
        assert_string_equal(o.out, "HellaSwag       1 item   acc 1.0000  acc_norm 1.0000\n");
        outcome_done(&o);
    }
}

/* Behind an empty context the first token of an ending counts too, given BOS, also where the
 * tokenizer adds none. */
static void test_empty_context(void **state)
{
    (void)state;
    char with[512], without[512], tasks[512];
    static const char items[] = "{\"ctx\": \"\", \"endings\": [\"y\", \"n\"], \"label\": 0}\n"
                                "{\"ctx\": \"\", \"endings\": [\"y n\", \"n\"], \"label\": 0}\n";
    snprintf(with, sizeof with, "%s", scripted("with.gguf", false, false));
    snprintf(without, sizeof without, "%s", scripted("without.gguf", true, false));
    snprintf(tasks, sizeof tasks, "%s", scratch_path("empty.jsonl"));
    write_whole(tasks, items, strlen(items));
    struct outcome a = run_command("%s ppl %s --tasks %s --json -q", trine, with, tasks);
    struct outcome b = run_command("%s ppl %s --tasks %s --json -q", trine, without, tasks);
    if (a.status != 0 || b.status != 0 || strcmp(a.out, b.out) != 0)
        fail_msg("'%s' %s, '%s' %s", a.out, a.err, b.out, b.err);
    outcome_done(&a);
    outcome_done(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    const char *text = scratch_path("short"), *base = scratch_path("refused");
    char arguments[512];
    write_whole(text, "In the beginning", 16);
    snprintf(arguments, sizeof arguments, MODEL " -f %s", text);
    expect_refusal(1, arguments, "2 chunks of 512 need 1024");
    snprintf(arguments, sizeof arguments, MODEL " --greedy %s --against %s.absent", text, text);
    expect_refusal(1, arguments, "absent");
    snprintf(arguments, sizeof arguments, MODEL " --tasks %s", text);
    expect_refusal(1, arguments, "line 1");
    write_whole(text, "fine\n\xff\n", 7);
    snprintf(arguments, sizeof arguments, MODEL " --greedy %s -n 1", text);
    expect_refusal(1, arguments, "line 2");
    expect_refusal(1, MODEL " -f " TEXT_FILE ".absent", "cannot open");
    expect_refusal(1, MODEL " --kl " TEXT_FILE, "no file of logits");
    snprintf(arguments, sizeof arguments, "-f %s -c 32 --chunks 2 --kl-base %s", TEXT_FILE, base);
    json_decref(ppl(arguments));
    snprintf(arguments, sizeof arguments, MODEL " -f README.md --kl %s", base);
    expect_refusal(1, arguments, "another text");
    snprintf(arguments, sizeof arguments, MODEL " -c 64 --kl %s", base);
    expect_refusal(1, arguments, "give -c 32");
    size_t size;
    char *bytes = read_whole(base, &size);
    write_whole(base, bytes, size - 1);
    snprintf(arguments, sizeof arguments, MODEL " --kl %s", base);
    expect_refusal(1, arguments, "cut or damaged");
    free(bytes);
}

static int prepare(void **state)
{
    (void)state;
    trine = build_path("trine");
    return 0;
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_protocol),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_planted_logit),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_tasks),
        cmocka_unit_test(test_wrong_usage),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_same_file),
        cmocka_unit_test(test_greedy_files_first),
        cmocka_unit_test(test_failure_half_way),
        cmocka_unit_test(test_added_end),
        cmocka_unit_test(test_empty_context),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
