package main

{imports}
{program}
type publishedTest struct{}

type publishedAsserts struct{}

var assert publishedAsserts

func (publishedAsserts) New(*publishedTest) publishedAsserts { return assert }

func (publishedAsserts) Equal(expected, actual interface{}, _ ...interface{}) {
	one, isBytes := expected.([]byte)
	other, areBytes := actual.([]byte)
	if isBytes && areBytes && one != nil && other != nil {
		if harness_bytes.Equal(one, other) {
			return
		}
	} else if harness_reflect.DeepEqual(expected, actual) {
		return
	}
	harness_fmt.Printf("\na test failed: expected %v, got %v\n", expected, actual)
	harness_os.Exit(0)
}

{tests}

func main() {
	{name}(&publishedTest{})
	harness_fmt.Println()
	harness_io.Copy(harness_os.Stdout, harness_os.Stdin)
}
