package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
)

// Readmitter is a Handler that can resume managing a GPU after a fatal Xid error. Only root may make this call.
type Readmitter interface {
	Readmit(ctx context.Context, gpu int) error
}

// serveReadmit returns the handler for POST /v1/gpus/{gpu}/readmit.
func serveReadmit(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if refuseUser(h, w, r, "only root may readmit GPUs") {
			return
		}
		readmitter, ok := h.(Readmitter)
		if !ok {
			answer(w, nil, NotFound("couldn't readmit: this agent does not support it"))
			return
		}
		gpu, err := strconv.Atoi(r.PathValue("gpu"))
		if err != nil {
			answer(w, nil, badRequest("couldn't readmit: the GPU is not a number"))
			return
		}
		answer(w, struct{}{}, readmitter.Readmit(r.Context(), gpu))
	}
}

// Readmit makes the agent resume managing a GPU that it withdrew after a fatal Xid error.
func (c *Client) Readmit(ctx context.Context, gpu int) error {
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/v1/gpus/%d/readmit", gpu), nil, nil)
}
