import { render } from "preact";
import { App } from "./app.tsx";
import "./style.css";

const root = document.getElementById("app");
if (root === null) throw new Error("the page has no element #app");
render(<App />, root);
