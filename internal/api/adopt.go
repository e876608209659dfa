package api

import (
	"context"
	"encoding/json"
	"net/http"
)

// AdoptRequest names foreign instances that the agent shall manage.
type AdoptRequest struct {
	// UUIDs are their MIG devices; none means every foreign instance of the node.
	UUIDs []string `json:"uuids,omitempty"`
}

// Adoption is the result for one foreign instance.
type Adoption struct {
	GPU int `json:"gpu"`
	Instance
	// Reason is why the instance stays foreign; empty if the agent manages it now.
	Reason string `json:"reason,omitempty"`
}

// Adopter is a Handler that can adopt foreign instances. Only root may call it.
type Adopter interface {
	Adopt(ctx context.Context, req AdoptRequest) ([]Adoption, error)
}

// serveAdopt serves POST /v1/adopt.
func serveAdopt(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if refuseUser(h, w, r, "only root may adopt instances") {
			return
		}
		adopter, ok := h.(Adopter)
		if !ok {
			answer(w, nil, NotFound("couldn't adopt: this agent cannot"))
			return
		}
		var req AdoptRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&req); err != nil {
			answer(w, nil, bad("couldn't read the request to adopt: "+err.Error()))
			return
		}
		all, err := adopter.Adopt(r.Context(), req)
		answer(w, all, err)
	}
}

// Adopt has the agent manage foreign instances. The answer has one entry for each of them.
func (c *Client) Adopt(ctx context.Context, req AdoptRequest) ([]Adoption, error) {
	var all []Adoption
	err := c.call(ctx, http.MethodPost, "/v1/adopt", req, &all)
	return all, err
}
