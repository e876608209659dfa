// Package mig knows the geometry of MIG: what a GPU can be cut into, what is still possible beside what is there, and
// what a cut costs in later choices. It is pure: no hardware, no clock, no I/O, no goroutines. It never decides
// which placement to take (package place does) and never makes one (package gpu does).
//
// # Units, placements, layouts
//
// A GPU's memory is a row of units, 4 to 12 of them, and a profile is a number of consecutive units that may begin at
// certain starts. On an A100-40GB (8 units):
//
//	1g.5gb   size 1, starts 0 1 2 3 4 5 6      3g.20gb  size 4, starts 0 4
//	1g.10gb  size 2, starts 0 2 4 6            4g.20gb  size 4, start  0
//	2g.10gb  size 2, starts 0 2 4              7g.40gb  size 8, start  0
//
// A profile at a start is a [Placement]; a set of placements that can stand on the GPU together is a [Layout]. A layout
// is drawn as the row of units:
//
//	|3g.20gb====================|1g.5gb|......|......|......|
//
// Four things forbid a placement beside a layout: its units overlap; the profile has reached its instance limit; the
// compute slices are used up; the media engines are (NVDEC, NVENC, NVJPEG, OFA). On 8-unit GPU models the units decide
// everything (no layout of an A100 exceeds its 7 compute slices); on the RTX PRO 6000 a single 1g.24gb+me.all takes
// every decoder and leaves room for -me profiles only, wherever the units are free.
//
// # Counting futures
//
// Where one 1g.5gb is put on an empty A100 decides what the GPU can become. [Model.Reach] counts the maximal layouts
// (those that take no further instance) that still contain what is there, [Model.CC] the placements that are still
// open:
//
//	start of the 1g.5gb   0  1  2  3  4  5  6
//	reach, of 78         21 21 21 21 22 22 33
//	CC, of 18            12 12 12 12 13 13 14
//
// Start 6 is best by both: it spoils only the 3g.20gb at 4, the 1g.10gb at 6 and the whole GPU.
package mig
