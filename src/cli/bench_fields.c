#include "cli/bench_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "cli/build_commit.h"
#include "engine/plan_print.h"
#include "machine/cpu_features.h"
#include "measure/json_finite.h"

static void put_text(json_t *fields, const char *name, const char *text)
{
    json_object_set_new(fields, name, json_string(text));
}

static void put_integer(json_t *fields, const char *name, int64_t value)
{
    json_object_set_new(fields, name, json_integer(value));
}

static void put_number(json_t *fields, const char *name, double value)
{
    json_object_set_new(fields, name, json_finite(value));
}

static void put_build(json_t *fields)
{
    put_text(fields, "build_commit", build_commit());
    put_integer(fields, "build_number", build_number());
    put_text(fields, "cpu_info", cpu_name());
    put_text(fields, "gpu_info", "");
    put_text(fields, "backends", "CPU");
}

static void put_model(json_t *fields, const struct bench_model *model)
{
    char path[512];
    text_printable(text_of(model->model.path), path, sizeof path);
    put_text(fields, "model_filename", path);
    put_text(fields, "model_type", model->type);
    put_integer(fields, "model_size", (int64_t)model->bytes);
    put_integer(fields, "model_n_params", (int64_t)model->n_weights);
}

static void put_conditions(json_t *fields, const struct bench_run *run,
                           const struct bench_result *r)
{
    const struct plan *plan = engine_plan_of(run->engine);
    const char *kv = plan->options.kv_format == KV_FORMAT_Q8_0 ? "q8_0" : "f16";
    put_integer(fields, "n_batch", run->n_batch);
    put_integer(fields, "n_ubatch", run->n_batch);
    put_integer(fields, "n_threads", plan->layout->n_threads);
    put_text(fields, "type_k", kv);
    put_text(fields, "type_v", kv);
    put_integer(fields, "n_prompt", r->test.n_prompt);
    put_integer(fields, "n_gen", r->test.n_gen);
    put_integer(fields, "n_depth", r->test.n_depth);
}

static void put_times(json_t *fields, const struct bench_result *r, const struct bench_speed *speed)
{
    char begun[32];
    struct tm utc;
    gmtime_r(&r->begun, &utc);
    strftime(begun, sizeof begun, "%Y-%m-%dT%H:%M:%SZ", &utc);
    put_text(fields, "test_time", begun);
    put_integer(fields, "avg_ns", llround(speed->avg_ns));
    put_integer(fields, "stddev_ns", llround(speed->stddev_ns));
    put_number(fields, "avg_ts", speed->avg_ts);
    put_number(fields, "stddev_ts", speed->stddev_ts);
    json_t *samples_ns = json_array(), *samples_ts = json_array();
    for (int i = 0; i < r->n_samples; i++) {
        json_array_append_new(samples_ns, json_integer(r->samples_ns[i]));
        json_array_append_new(samples_ts, json_real(bench_sample_ts(r, i)));
    }
    json_object_set_new(fields, "samples_ns", samples_ns);
    json_object_set_new(fields, "samples_ts", samples_ts);
}

static void put_choices(json_t *fields, const struct bench_run *run, const struct bench_result *r)
{
    const struct plan *plan = engine_plan_of(run->engine);
    const struct engine_options *o = &plan->options;
    put_integer(fields, "n_seq", r->test.n_seq);
    put_integer(fields, "n_nodes", plan->layout->n_nodes);
    put_text(fields, "dataflow", o->dataflow == DATAFLOW_ROW ? "row" : "column");
    static const char *const heads[] = {"keep", "q8_0", "q6_k", "q4_k", "q4_0"};
    put_text(fields, "isa", isa_name(o->isa));
    put_text(fields, "head", heads[o->head]);
    static const char *const trits[] = {"auto", "trits4", "trits5"};
    put_text(fields, "trits", trits[o->trits]);
    char kernels[256];
    put_text(fields, "trits_choice", trits_reason_name(plan->trits.reason));
    plan_kernel_names(plan, kernels, sizeof kernels);
    put_text(fields, "kernels", kernels);
    static const char *const act_scales[] = {"node", "token", "group"};
    put_text(fields, "act_scale", act_scales[o->act_scale]);
    put_text(fields, "barrier", o->is_flat_barrier ? "flat" : "two-level");
    put_text(fields, "rows", o->is_static_rows ? "static" : "dynamic");
    static const char *const quantise[] = {"auto", "each", "leader", "split"};
    static const char *const placement[] = {"local", "interleave", "one-node"};
    put_text(fields, "quantise", quantise[o->quantise]);
    put_text(fields, "attention_split", o->is_attention_whole ? "off" : "on");
    put_text(fields, "kv_placement", placement[o->kv_placement]);
    put_text(fields, "weights_placement", placement[o->weights_placement]);
    put_integer(fields, "extra_barriers", o->n_extra_barriers);
    put_integer(fields, "promote_barriers", o->n_promoted_barriers);
    put_integer(fields, "prefetch_wait_kib", o->prefetch_wait_kib);
    put_text(fields, "row_scatter", o->row_scatter == ROW_SCATTER_COPY ? "copy" : "direct");
    put_text(fields, "row_attention",
             o->row_attention == ROW_ATTENTION_POSITION ? "position" : "head");
}

static void put_memory(json_t *fields, const struct bench_result *r,
                       const struct bench_speed *speed)
{
    const struct engine_report *report = &r->report;
    char hash[24];
    put_number(fields, "bytes_per_token", speed->bytes_per_token);
    put_number(fields, "gb_s", speed->gb_s);
    put_number(fields, "read_bandwidth_gb_s", r->bandwidth / 1e9);
    put_number(fields, "share", speed->share);
    put_number(fields, "placed", report->placed < 0 ? NAN : report->placed);
    json_object_set_new(fields, "migrated_pages",
                        report->n_migrated < 0 ? json_null() : json_integer(report->n_migrated));
    put_number(fields, "load_s", report->load_s);
    snprintf(hash, sizeof hash, "%016" PRIx64, r->hash);
    put_text(fields, "logits_hash", hash);
}

json_t *bench_fields(const struct bench_model *model, const struct bench_run *run,
                     const struct bench_result *result)
{
    json_t *fields = json_object();
    if (!fields)
        return NULL;
    struct bench_speed speed;
    bench_speed_of(result, &speed);
    put_build(fields);
    put_model(fields, model);
    put_conditions(fields, run, result);
    put_times(fields, result, &speed);
    put_choices(fields, run, result);
    put_memory(fields, result, &speed);
    if (run->counted)
        json_object_set_new(fields, "counters", bench_counters_fields(run->counted));
    return fields;
}
