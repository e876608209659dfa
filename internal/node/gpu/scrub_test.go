package gpu

import "testing"

func TestUnscrubbed(t *testing.T) {
	for params, want := range map[string]bool{
		"": false,
		"ModifyDeviceFiles: 1\nRegistryDwords: \"\"\nRegistryDwordsPerDevice: \"\"\n":      false,
		"RegistryDwords: \"RMDisableScrubOnFree=1\"\n":                                     true,
		"RegistryDwords: \"PowerMizer=0x1; rmdisablescrubonfree = 0x1;X=0\"\n":             true,
		"RegistryDwords: \"RMDisableScrubOnFree=0x0\"\n":                                   false,
		"RegistryDwords: \"RMDisableScrubOnFree\"\n":                                       true,
		"RegistryDwordsPerDevice: \"pci=0000:01:00.0;RMDisableScrubOnFree=1\"\n":           true,
		"RegistryDwords: \"XRMDisableScrubOnFree=1\"\nRmMsg: \"RMDisableScrubOnFree=1\"\n": false,
	} {
		if got := Unscrubbed(params); got != want {
			t.Errorf("%q: %v", params, got)
		}
	}
}
