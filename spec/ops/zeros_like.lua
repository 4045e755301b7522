--- zeros_like: sample data.
return {
  calls = {{x = {3, 4}}, {x = {3}, dtype = "i32"}}, empty = {{x = {0, 4}}}, scalar = {{x = {}}},
  large = {x = {100003}},
  expect = {{{x = {5, 6}}, {0, 0}}},
}
