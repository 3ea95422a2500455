/* What the pictures of a trace share. Only for trace_*.c. */
#ifndef TRINE_ENGINE_TRACE_SVG_H
#define TRINE_ENGINE_TRACE_SVG_H

#include "engine/trace_print.h"

/* Of both pictures: where their bars and rows begin and how long they are at most. */
#define PICTURE_LEFT  110
#define PICTURE_WIDTH 680
#define PICTURE_ALL   960

/* The beginning of a picture of this height. */
void trace_svg_begin(FILE *out, int height);

/* Lines at round numbers of a span of seconds that is drawn as PICTURE_WIDTH, from y to bottom, with
 * their milliseconds or microseconds below. */
void trace_svg_axis(FILE *out, double span_s, int y, int bottom);

/* A square with its meaning; returns the x of the next. */
int trace_svg_legend(FILE *out, int x, int y, const char *fill, const char *text);

/* One token: rows are threads, boxes are steps, hatched where a thread waits. layer: this one alone,
 * with the names of steps; -1: the whole token. */
void trace_print_timeline(FILE *out, const struct trace_report *report, int layer);

/* The layer in the middle; -1: there is none. */
int trace_middle_layer(const struct trace_report *report);

#endif
