package mig

import "testing"

// Making every board of the tables, and its table of layouts.
func BenchmarkAllBoards(b *testing.B) {
	for b.Loop() {
		boards, err := parseBoards(boardsText)
		if err != nil {
			b.Fatal(err)
		}
		for _, board := range boards {
			board.Table()
		}
	}
}

func benchmarkLayouts(b *testing.B, f func(*Board, Layout)) {
	board := board(b, "A100-40GB", Plain)
	layouts := board.Layouts()
	i := 0
	for b.Loop() {
		f(board, layouts[i%len(layouts)])
		i++
	}
}

func BenchmarkOpen(b *testing.B)  { benchmarkLayouts(b, func(g *Board, l Layout) { g.Open(l, 0) }) }
func BenchmarkReach(b *testing.B) { benchmarkLayouts(b, func(g *Board, l Layout) { g.Reach(l) }) }
func BenchmarkReachBeside(b *testing.B) {
	benchmarkLayouts(b, func(g *Board, l Layout) { g.ReachBeside(l, 1<<7) })
}
func BenchmarkDraw(b *testing.B) { benchmarkLayouts(b, func(g *Board, l Layout) { g.Draw(l) }) }
