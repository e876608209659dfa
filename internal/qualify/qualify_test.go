package qualify

import "testing"

func TestModels(t *testing.T) {
	for _, board := range []string{"A100-40GB"} {
		t.Run(board, func(t *testing.T) {
			rep := newNode(t, board, 2).run(t, nil)
			t.Log(rep)
		})
	}
}
