--- empty: sample data.
return {
  calls = {{shape = {3, 4}}}, empty = {{shape = {0, 4}}}, scalar = {{shape = {}}}, special = false,
  arbitrary = true,
}
