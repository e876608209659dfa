// Package mig implements the geometry of MIG: the layouts of a GPU, the placements that remain possible beside a
// layout, and how many later choices a placement rules out. The package is pure: it uses no hardware, clock, I/O or
// goroutines. The package never chooses a placement (package place does) and never creates an instance (package gpu
// does). # Units, placements, layouts
//
// A GPU's memory is a row of 4 to 12 units. A profile occupies a fixed number of consecutive units,
// and may begin only at certain units (its starts). On an A100-40GB (8 units):
//
//	1g.5gb   size 1, starts 0 1 2 3 4 5 6      3g.20gb  size 4, starts 0 4
//	1g.10gb  size 2, starts 0 2 4 6            4g.20gb  size 4, start  0
//	2g.10gb  size 2, starts 0 2 4              7g.40gb  size 8, start  0
//
// A profile at a start is a [Placement]. A set of placements that fit on the GPU together is a [Layout]. A layout is
// drawn as the row of units:
//
//	|3g.20gb====================|1g.5gb|......|......|......|
//
// A placement is not possible beside a layout if its units overlap the layout, if its profile has reached its instance
// limit, or if too few compute slices or media engines (NVDEC, NVENC, NVJPEG, OFA) are left. On GPU models with 8
// units, only the units matter: no layout of an A100 exceeds its 7 compute slices. On the RTX PRO 6000, a single
// 1g.24gb+me.all takes all media engines. Beside it, only -me profiles still fit, wherever units are free.
//
// # Counting futures
//
// The start of one 1g.5gb on an empty A100 determines which layouts remain possible. [Model.Reach] counts the maximal
// layouts that contain a given layout; a layout is maximal if no further instance fits beside it. [Model.CC] counts the
// placements that are still open:
//
//	start of the 1g.5gb   0  1  2  3  4  5  6
//	reach, of 78         21 21 21 21 22 22 33
//	CC, of 18            12 12 12 12 13 13 14
//
// Start 6 is the best by both measures, because it rules out only the 3g.20gb at 4, the 1g.10gb at
// 6 and the whole GPU.
//
// # Files
//
//	draw.go      draws a layout, parses a drawing, lists placements (3g.20gb@0)
//	fits.go      which placements fit beside a layout: units, instance limits, compute slices, media engines
//	futures.go   all layouts and the maximal ones; the numbers Reach and CC
//	grestype.go  the Type in gres.conf from NVML's device name (GRESType)
//	layout.go    Layout: a set of placements in one word
//	model.go     Model, Placement; Select, Carry (between models), EquivalentProfile; MaxPlacements 64
//	profile.go   Profile: name, size, memory (88% of the name's if unknown), engines; plain profiles; Claims of a name
//	nodes.go     Table and Node: reach, CC, fragmentation and free units of every layout, computed once
//	modellist.go the GPU models of models.txt: parser, and search by name
package mig
