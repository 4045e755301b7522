--- full_like: sample data.
return {
  calls = {{x = {3, 4}, value = 1}, {x = {3}, value = 2, dtype = "i32"}}, empty = {{x = {0, 4}, value = 1}},
  scalar = {{x = {}, value = 1}}, large = {x = {100003}, value = 2},
  expect = {{{x = {5, 6}, value = 1}, {1, 1}}},
}
