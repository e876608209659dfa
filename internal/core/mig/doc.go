// Package mig implements the geometry of MIG: the layouts of a GPU, the placements that are still possible alongside a
// layout, and the number of later choices that a placement rules out. It is pure: it uses no hardware, clock, I/O or
// goroutines. Package place chooses placements, and package gpu creates instances.
//
// # Units, placements, layouts
//
// A GPU's memory is a row of 4 to 12 units. A profile occupies a fixed number of consecutive units and can begin only
// at certain units (its starts). An A100-40GB has 8 units and these profiles:
//
//	1g.5gb   size 1, starts 0 1 2 3 4 5 6      3g.20gb  size 4, starts 0 4
//	1g.10gb  size 2, starts 0 2 4 6            4g.20gb  size 4, start  0
//	2g.10gb  size 2, starts 0 2 4              7g.40gb  size 8, start  0
//
// A profile at a start is a [Placement]. A set of placements that fit on the GPU at the same time is a [Layout]. Drawn
// as a row of units, a layout looks like this:
//
//	|3g.20gb====================|1g.5gb|......|......|......|
//
// There are three reasons why a placement may not fit alongside a layout: its units overlap the layout, its profile has
// reached its instance limit, or too few compute slices or media engines (NVDEC, NVENC, NVJPEG, OFA) are free. On GPU
// models with 8 units, only the units matter: no layout of an A100 exceeds the GPU's 7 compute slices. On the RTX PRO
// 6000, a single 1g.24gb+me.all uses all media engines. Alongside it, only -me profiles fit, regardless of how many
// units are free.
//
// # Counting futures
//
// Even a single 1g.5gb on an empty A100 makes many layouts impossible. A layout is maximal if no further instance fits.
// [Model.Reach] is the number of maximal layouts that include a given layout. [Model.CC] is the number of placements
// that still fit alongside a given layout:
//
//	start of the 1g.5gb   0  1  2  3  4  5  6
//	reach, of 78         21 21 21 21 22 22 33
//	CC, of 18            12 12 12 12 13 13 14
//
// Start 6 is the best start by both measures, because a 1g.5gb there rules out only the 3g.20gb at 4, the 1g.10gb at 6
// and the whole GPU.
//
// # Files
//
//	draw.go      draws a layout, parses a drawing, lists placements (3g.20gb@0)
//	fits.go      which placements fit alongside a layout: units, instance limits, compute slices, media engines
//	fractions.go the model of a GPU without MIG whose memory is divided (Fractions)
//	full.go      the Full profile: a GPU whose MIG mode is off
//	futures.go   all layouts and all maximal layouts; Reach and CC
//	grestype.go  derives the Type in gres.conf from NVML's device name (GRESType)
//	layout.go    Layout: a set of placements in one word
//	model.go     Model, Placement; Select, Carry (between models), EquivalentProfile; maxPlacements
//	profile.go   Profile: name, size, memory, engines; plain profiles; the numbers in a name (Claims)
//	table.go     Table and Node: reach, CC, fragmentation and free units of every layout, computed once
//	modellist.go the GPU models in models.txt: parser and lookup by name
package mig
