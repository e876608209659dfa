package agent

import (
	"maps"
	"slices"
	"strings"

	"caelum/internal/node/state"
)

// nvlinksKey is the key of the NVLinks in the ledger's metadata. The value is a list of pairs of GPU UUIDs.
const nvlinksKey = "nvlinks"

// loadNVLinks reads the NVLinks that an earlier agent recorded. Because the driver reports a GPU's NVLinks only while
// its MIG mode is off, the record is kept even after a reboot.
func (a *Agent) loadNVLinks() error {
	text, err := a.ledger.Meta(nvlinksKey)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 {
			a.node.NVLinks[state.Pair{f[0], f[1]}] = true
		}
	}
	a.node.Lock()
	defer a.node.Unlock()
	a.node.GroupNVLinks()
	return nil
}

// readNVLinks asks the driver for the NVLinks between the GPUs whose MIG mode is off, and records the answers in the
// ledger. It skips GPUs whose MIG mode another goroutine may be switching. If the driver does not answer for a pair,
// the earlier answer is kept. Only the goroutine that compares the GPUs may call it.
func (a *Agent) readNVLinks() {
	links, err := a.queryNVLinks()
	if !maps.Equal(links, a.node.NVLinks) {
		var lines []string
		for p := range links {
			lines = append(lines, p[0]+" "+p[1]+"\n")
		}
		slices.Sort(lines)
		if err = a.ledger.SetMeta(nvlinksKey, strings.Join(lines, "")); err == nil {
			a.node.Lock()
			a.node.NVLinks = links
			a.node.GroupNVLinks()
			a.node.Version++
			a.node.Unlock()
			a.log.WithField("pairs", len(links)).Info("recorded the NVLinks between the GPUs")
		}
	}
	if err != nil && err.Error() != a.nvlinksError {
		a.nvlinksError = err.Error() // logged once
		a.log.WithError(err).Warn("couldn't determine which GPUs are connected by NVLinks")
	}
}

// queryNVLinks returns the recorded NVLinks, corrected by the driver's answers. The error is the last one that the
// driver returned.
func (a *Agent) queryNVLinks() (links map[state.Pair]bool, err error) {
	found := a.fullCards()
	defer func() {
		for _, g := range found {
			a.node.Cards[g].Hardware.Unlock()
		}
	}()
	links = maps.Clone(a.node.NVLinks)
	for i, x := range found {
		for _, y := range found[i+1:] {
			linked, failed := a.hw.Linked(x, y)
			if failed != nil {
				err = failed
				continue
			}
			key := state.Pair{a.node.Cards[x].UUID, a.node.Cards[y].UUID}
			if delete(links, key); linked {
				links[key] = true
			}
		}
	}
	return links, err
}

// fullCards returns the usable GPUs whose MIG mode is off, with their hardware locks. It returns nil if fewer than
// three of the node's GPUs can be full GPUs, because NVLinks then do not affect the choice of GPUs.
func (a *Agent) fullCards() (found []int) {
	if a.node.MostFull() < 3 {
		return nil
	}
	for g, c := range a.node.Cards {
		if !a.node.Usable(c) || !c.MayBeFull() || !c.Hardware.TryLock() {
			continue
		}
		a.node.Lock()
		full := c.IsFull()
		a.node.Unlock()
		if full {
			found = append(found, g)
		} else {
			c.Hardware.Unlock()
		}
	}
	return found
}
