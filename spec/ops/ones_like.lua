--- ones_like: sample data.
return {
  calls = {{x = {3, 4}}, {x = {3}, dtype = "bf16"}}, empty = {{x = {0, 4}}}, scalar = {{x = {}}},
  large = {x = {100003}},
  expect = {{{x = {5, 6}}, {1, 1}}},
}
