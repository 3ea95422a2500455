/* Items of the three kinds as their data sets write them, and lines that are none. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../support.h"
#include "measure/choice_tasks.h"
#include "measure/greedy_file.h"

static enum status read_text(struct choice_tasks *tasks, const char *text, struct error *err)
{
    const char *path = scratch_path("tasks.jsonl");
    *tasks = (struct choice_tasks){0};
    write_whole(path, text, strlen(text));
    return choice_tasks_read(tasks, path, err);
}

static void expect_item(const struct choice_item *item, enum choice_kind kind, int n, int answer)
{
    assert_int_equal(item->kind, kind);
    assert_int_equal(item->n, n);
    assert_int_equal(item->answer, answer);
}

static void test_kinds(void **state)
{
    (void)state;
    struct choice_tasks tasks;
    struct error err;
    static const char text[] =
        "{\"ctx\": \"A man\", \"endings\": [\"sat.\", \"flew  off.\"], \"label\": 1}\n"
        "\n"
        "{\"ctx_a\": \"Cook [header] it.\", \"ctx_b\": \"the Pan\", \"ctx\": \"unused\", "
        "\"activity_label\": \"Food\", \"endings\": [\"is [step] hot [title] Eat\", \"x\"], "
        "\"label\": \"0\"}\r\n"
        "{\"question\": \"Why?\", \"choices\": {\"text\": [\"a\", \"b\", \"c\"], \"label\": "
        "[\"1\", \"2\", \"3\"]}, \"answerKey\": \"3\"}\n"
        "{\"question\": {\"stem\": \"Who?\", \"choices\": [{\"text\": \"p\", \"label\": \"A\"}, "
        "{\"text\": \"q\", \"label\": \"B\"}]}, \"answerKey\": \"A\"}\n"
        "{\"sentence\": \"Ann saw _ because it was big.\", \"option1\": \"a cat\", \"option2\": "
        "\"a house\", \"answer\": \"2\"}";
    if (read_text(&tasks, text, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(tasks.n, 5);
    const struct choice_item *item = tasks.items;
    expect_item(item, CHOICE_HELLASWAG, 2, 1);
    assert_string_equal(item->contexts[1], "A man");
    assert_string_equal(item->endings[1], "flew off.");
    expect_item(++item, CHOICE_HELLASWAG, 2, 0);
    assert_string_equal(item->contexts[0], "Food: Cook it. The pan");
    assert_string_equal(item->endings[0], "is hot. Eat");
    expect_item(++item, CHOICE_ARC, 3, 2);
    assert_string_equal(item->contexts[2], "Question: Why?\nAnswer:");
    assert_string_equal(item->endings[2], "c");
    expect_item(++item, CHOICE_ARC, 2, 0);
    assert_string_equal(item->contexts[0], "Question: Who?\nAnswer:");
    expect_item(++item, CHOICE_WINOGRANDE, 2, 1);
    assert_string_equal(item->contexts[0], "Ann saw a cat");
    assert_string_equal(item->contexts[1], "Ann saw a house");
    assert_string_equal(item->endings[1], "because it was big.");
    choice_tasks_done(&tasks);
}

/* Each is refused with its line's number. */
static void test_bad_lines(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{",
        "[1]",
        "{} {}",
        "{\"text\": 1}",
        "{\"endings\": [\"a\", \"b\"], \"label\": 0}",
        "{\"ctx\": \"c\", \"endings\": [\"a\"], \"label\": 0}",
        "{\"ctx\": \"c\", \"endings\": \"ab\", \"label\": 0}",
        "{\"ctx\": \"c\", \"endings\": [\"a\", 1], \"label\": 0}",
        "{\"ctx\": \"c\", \"endings\": [\"a\", \"\"], \"label\": 0}",
        "{\"ctx\": \"c\", \"endings\": [\"a\", \"[x]\"], \"label\": 0}",
        "{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 2}",
        "{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": -1}",
        "{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": \"\"}",
        "{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 99999999999}",
        "{\"ctx\": \"c\\u0000d\", \"endings\": [\"a\", \"b\"], \"label\": 0}",
        "{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"]}",
        "{\"question\": \"q\", \"choices\": {\"text\": [\"a\", \"b\"], \"label\": [\"A\"]}, "
        "\"answerKey\": \"B\"}",
        "{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answerKey\": \"B\"}",
        "{\"question\": {}, \"choices\": [], \"answerKey\": \"B\"}",
        "{\"question\": 1}",
        "{\"sentence\": \"no blank\", \"option1\": \"a\", \"option2\": \"b\", \"answer\": \"1\"}",
        "{\"sentence\": \"at the end _\", \"option1\": \"a\", \"option2\": \"b\", \"answer\": "
        "\"1\"}",
        "{\"sentence\": \"a _ b\", \"option1\": \"a\", \"answer\": \"1\"}",
        "{\"sentence\": \"a _ b\", \"option1\": \"a\", \"option2\": \"b\", \"answer\": \"3\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct choice_tasks tasks;
        struct error err = {0};
        char text[512];
        snprintf(text, sizeof text,
                 "\n{\"ctx\": \"c\", \"endings\": [\"a\", \"b\"], \"label\": 1}\n%s\n", bad[i]);
        enum status status = read_text(&tasks, text, &err);
        if (status != STATUS_FORMAT || !strstr(err.text, "line 3"))
            fail_msg("%s: status %d, '%s'", bad[i], status, err.text);
        choice_tasks_done(&tasks);
    }
    struct choice_tasks tasks;
    struct error err;
    assert_int_equal(read_text(&tasks, "\n\n", &err), STATUS_LIMIT);
    choice_tasks_done(&tasks);
    assert_int_equal(choice_tasks_read(&tasks, scratch_path("absent"), &err), STATUS_IO);
    choice_tasks_done(&tasks);
}

/* The first is likelier, the second is likelier per byte. */
static void test_score(void **state)
{
    (void)state;
    struct choice_item item = {.n = 2, .answer = 1, .endings = {"four", "eight by"}};
    struct choice_score score = {0};
    choice_score_add(&score, &item, (double[]){-10, -15});
    assert_int_equal(score.n, 1);
    assert_int_equal(score.n_right, 0);
    assert_int_equal(score.n_right_norm, 1);
    choice_score_add(&score, &item, (double[]){-15, -10});
    assert_int_equal(score.n_right, 1);
    assert_int_equal(score.n_right_norm, 2);
    choice_score_add(&score, &item, (double[]){-5, -5}); /* of equals the first */
    assert_int_equal(score.n_right, 1);
    assert_int_equal(score.n_right_norm, 3);
}

static void test_first_difference(void **state)
{
    (void)state;
    int32_t tokens[] = {1, 2, 3}, other[] = {1, 2, 4};
    struct continuation a = {.tokens = tokens, .n = 3}, b = {.tokens = other, .n = 3};
    assert_int_equal(first_difference(&a, &a), -1);
    assert_int_equal(first_difference(&a, &b), 2);
    b.n = 2;
    assert_int_equal(first_difference(&a, &b), 2);
    assert_int_equal(first_difference(&b, &a), 2);
    a.n = 2;
    assert_int_equal(first_difference(&a, &b), -1);
}

int main(int argc, char **argv)
{
    support_init(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_score),
        cmocka_unit_test(test_first_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
