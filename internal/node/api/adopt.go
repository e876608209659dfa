package api

import (
	"context"
	"encoding/json"
	"net/http"
)

// AdoptRequest names the foreign instances that the agent is to adopt.
type AdoptRequest struct {
	// UUIDs lists their MIG device UUIDs. An empty list means every foreign instance on the node.
	UUIDs []string `json:"uuids,omitempty"`
}

// Adoption is the result of adopting one foreign instance. Its State is empty if the agent has destroyed the instance,
// because it had no compute instance.
type Adoption struct {
	GPU int `json:"gpu"`
	Instance
	// Reason explains why the instance remains foreign. It is empty if the agent has adopted the instance.
	Reason string `json:"reason,omitempty"`
}

// Adopter is a Handler that can adopt foreign instances. Only root may make this call.
type Adopter interface {
	Adopt(ctx context.Context, req AdoptRequest) ([]Adoption, error)
}

// serveAdopt returns the handler for POST /v1/adopt.
func serveAdopt(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if refuseUser(h, w, r, "only root may adopt instances") {
			return
		}
		adopter, ok := h.(Adopter)
		if !ok {
			answer(w, nil, NotFound("couldn't adopt: this agent does not support adoption"))
			return
		}
		var req AdoptRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&req); err != nil {
			answer(w, nil, badRequest("couldn't read the adoption request: "+err.Error()))
			return
		}
		all, err := adopter.Adopt(r.Context(), req)
		answer(w, all, err)
	}
}

// Adopt makes the agent adopt foreign instances. The result contains one entry per instance.
func (c *Client) Adopt(ctx context.Context, req AdoptRequest) ([]Adoption, error) {
	var all []Adoption
	err := c.call(ctx, http.MethodPost, "/v1/adopt", req, &all)
	return all, err
}
