package mig

import "strings"

// GRESType returns the Type of a GPU in gres.conf, derived from NVML's device name. The result is the device name in
// lower case, without the manufacturer, up to the word with the model number.
//
//	NVIDIA A100-SXM4-40GB                          a100
//	NVIDIA GH200 480GB                             gh200
//	NVIDIA RTX PRO 6000 Blackwell Server Edition   rtx_pro_6000
//
// The result consists of the characters [a-z0-9_] and is never empty. The Type of a device without a name is "gpu".
func GRESType(device string) string {
	words := strings.FieldsFunc(strings.ToLower(device), func(r rune) bool {
		return !('a' <= r && r <= 'z' || '0' <= r && r <= '9')
	})
	var model []string
	for _, w := range words {
		if w == "nvidia" || w == "tesla" {
			continue
		}
		model = append(model, w)
		if strings.ContainsAny(w, "0123456789") {
			break
		}
	}
	if model == nil {
		return "gpu"
	}
	return strings.Join(model, "_")
}

// TypeNames reports whether a GPU type that a site chose contains a model's Type: A100, a100_80gb and
// nvidia_a100-sxm4-80gb contain a100, but a1000 does not. Case does not matter, and the separators _, - and . are
// equivalent.
func TypeNames(site, model string) bool {
	plain := func(s string) string {
		return "_" + strings.Map(func(r rune) rune {
			if r == '-' || r == '.' || r == ' ' {
				return '_'
			}
			return r
		}, strings.ToLower(s)) + "_"
	}
	return strings.Contains(plain(site), plain(model))
}
