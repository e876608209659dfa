package mig

import "testing"

// BenchmarkAllModels measures how long it takes to create all GPU models in models.txt with their tables of layouts.
func BenchmarkAllModels(b *testing.B) {
	for b.Loop() {
		models, err := parseModels(modelsText)
		if err != nil {
			b.Fatal(err)
		}
		for _, model := range models {
			model.Table()
		}
	}
}

func benchmarkLayouts(b *testing.B, f func(*Model, Layout)) {
	model := model(b, "A100-40GB", Plain)
	layouts := model.Layouts()
	i := 0
	for b.Loop() {
		f(model, layouts[i%len(layouts)])
		i++
	}
}

func BenchmarkOpen(b *testing.B) { benchmarkLayouts(b, func(g *Model, l Layout) { g.Open(l, 0) }) }
func BenchmarkReach(b *testing.B) {
	benchmarkLayouts(b, func(g *Model, l Layout) { g.ReachBeside(l, 0) })
}
func BenchmarkReachBeside(b *testing.B) {
	benchmarkLayouts(b, func(g *Model, l Layout) { g.ReachBeside(l, 1<<7) })
}
func BenchmarkDraw(b *testing.B) { benchmarkLayouts(b, func(g *Model, l Layout) { g.Draw(l) }) }
