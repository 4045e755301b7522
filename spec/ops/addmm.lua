--- addmm: sample data.
return {
  calls = {
    {input = {3, 5}, a = {3, 4}, b = {4, 5}}, {input = {5}, a = {3, 4}, b = {4, 5}, beta = 2},
    {input = {}, a = {3, 4}, b = {4, 5}, alpha = 3},
  },
  empty = {{input = {3}, a = {0, 4}, b = {4, 3}}, {input = {2, 3}, a = {2, 0}, b = {0, 3}}}, smooth = true,
  magnitude = 20,
  large = {input = {127}, a = {131, 317}, b = {317, 127}},
  expect = {{{input = {{1}}, a = {{1, 2}}, b = {{3}, {4}}, beta = 2, alpha = 3}, {{35}}}},
}
