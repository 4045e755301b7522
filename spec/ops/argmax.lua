--- argmax: sample data.
return {
  calls = {
    {x = {3, 4}}, {x = {3, 4}, dim = 1}, {x = {3, 4}, dim = -1, keepdim = true}, {x = {2, 3, 4}, dim = 2},
    {x = {37}},
  },
  empty = {{x = {0, 3}, dim = 2}}, scalar = {{x = {}}}, large = {x = {317, 317}, dim = 2},
  expect = {{{x = {{1, 7}, {3, 4}}, dim = 1}, {2, 1}}, {{x = {1, 7, 7}}, 2}},
}
