--- argsort: sample data.
return {
  calls = {{x = {3, 4}}, {x = {3, 4}, dim = 1, descending = true}, {x = {2, 3, 4}, dim = 2}, {x = {37}}},
  empty = {{x = {0, 3}}}, scalar = {{x = {}}}, large = {x = {100003}},
  expect = {{{x = {3, 1, 2, 1}}, {2, 4, 3, 1}}},
}
